"""Triton kernels that perfdb measures itself with: one package per operation, a plain reference beside each."""
