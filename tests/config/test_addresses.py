"""Addresses from the environment."""

import psycopg.conninfo
import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from kombu import Connection

from perfdb.config.addresses import broker_url, database_settings


def test_a_server_with_everything_spelled_out() -> None:
    found = database_settings("postgresql://ann:p%40ss@db.example:6543/perf%20db?sslmode=require")
    assert found == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "perf db",
        "USER": "ann",
        "PASSWORD": "p@ss",
        "HOST": "db.example",
        "PORT": "6543",
        "OPTIONS": {"sslmode": "require"},
    }


def test_a_socket_folder_agrees_with_what_libpq_reads() -> None:
    url = "postgresql:///perfdb?host=/srv/a%20b/socket&user=perfdb"
    found = database_settings(url)
    libpq = psycopg.conninfo.conninfo_to_dict(url)
    assert (found["NAME"], found["HOST"], found["USER"]) == (libpq["dbname"], libpq["host"], libpq["user"])
    assert found["OPTIONS"] == {}


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite:///db", "scheme 'sqlite'"),
        ("postgresql://host", "names no database"),
        ("postgresql://host:port/name", "Port could not be cast"),
        ("", "scheme ''"),
    ],
)
def test_a_database_address_that_cannot_be_meant_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=complaint):
        database_settings(url)


def test_a_message_arrives_in_the_database_that_the_brokers_address_names(redis_url: str) -> None:
    url = redis_url.replace("?db=0", "?db=3")
    with Connection(broker_url(url)) as connection:
        connection.SimpleQueue("addressed").put({"id": 1})
    with redis.Redis.from_url(url) as client:
        assert client.llen("addressed") == 1
        client.delete("addressed")


def test_an_ordinary_brokers_address_is_left_as_it_is() -> None:
    assert broker_url("rediss://:secret@host:6380/1") == "rediss://:secret@host:6380/1"


def test_another_broker_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="scheme 'amqp'"):
        broker_url("amqp://host")
