window.BENCHMARK_DATA = {
  "lastUpdate": 1700000100000,
  "repoUrl": "https://example.org/r",
  "entries": {
    "Rust": [
      {"commit": {"author": {"name": "a"}, "committer": {"name": "a"}, "id": "1111111111111111111111111111111111111111", "message": "one", "timestamp": "2023-11-14T22:13:20Z", "url": "https://example.org/c/1"},
       "date": 1700000000000, "tool": "cargo", "benches": [{"name": "bench_fib", "value": 255, "range": "± 32", "unit": "ns/iter"}, {"name": "bench_sum", "value": "13,967,756.30", "range": "+/- 266,769.64", "unit": "ns/iter"}]},
      {"commit": {"id": "2222222222222222222222222222222222222222", "message": "two", "timestamp": "2023-11-15T22:13:20Z"}, "date": 1700000100000, "tool": "customBiggerIsBetter", "benches": [{"name": "rate", "value": 70, "unit": "req/s"}]}],
    "Other": [
      {"commit": {"id": "2222222222222222222222222222222222222222"}, "date": 1700000100000, "tool": "go", "benches": [{"name": "BenchmarkX", "value": 5, "unit": "ns/op"}, {"name": "BenchmarkX - MB/s", "value": 7, "unit": "MB/s"}]},
      {"commit": null, "tool": "mystery", "benches": [{"name": "b", "value": 1, "unit": "u"}]}]
  }
}
