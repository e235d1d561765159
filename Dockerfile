# One image for web, workers and beat. torch from PyPI runs on the CPU and on NVIDIA GPUs alike; gcc is for
# Triton, which compiles its launchers where it runs; git reads the tracked repositories.
FROM python:3.12-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc git libc6-dev \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 perfdb \
 && install --directory --owner perfdb /var/lib/perfdb

WORKDIR /app
# The large layer first: it changes with this version alone.
RUN pip install --no-cache-dir torch==2.13.0
COPY . .
RUN pip install --no-cache-dir --editable '.[server,bench]'

# PERFDB_STATIC_ROOT has the pages' files collected, hashed and compressed into the image.
ENV PERFDB_STATE=/var/lib/perfdb PERFDB_STATIC_ROOT=/app/static PYTHONUNBUFFERED=1
RUN python manage.py collectstatic --noinput

USER perfdb
VOLUME /var/lib/perfdb
EXPOSE 8000
CMD ["gunicorn", "perfdb.config.wsgi", "--bind", "0.0.0.0:8000", "--workers", "2", "--threads", "4", "--access-logfile", "-", "--no-control-socket"]
