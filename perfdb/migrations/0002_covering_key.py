"""The key of `measurement` carries the summaries, so that a series is read from the index alone.

A covering key and insert-driven vacuum settings are beyond Django's schema language; its state is unchanged.
"""

from django.db import migrations

FORWARD = """
ALTER TABLE perfdb_measurement DROP CONSTRAINT perfdb_measurement_pkey;
ALTER TABLE perfdb_measurement ADD CONSTRAINT perfdb_measurement_pkey
    PRIMARY KEY (series_id, position, run_id)
    INCLUDE (launch_id, environment_id, n, failures, value, median, mad, p99, minimum, maximum, mhz, usable);
ALTER TABLE perfdb_measurement SET (
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000
);
"""
BACKWARD = """
ALTER TABLE perfdb_measurement RESET (
    autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold
);
ALTER TABLE perfdb_measurement DROP CONSTRAINT perfdb_measurement_pkey;
ALTER TABLE perfdb_measurement ADD CONSTRAINT perfdb_measurement_pkey
    PRIMARY KEY (series_id, position, run_id);
"""


class Migration(migrations.Migration):
    dependencies = [("perfdb", "0001_first")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
