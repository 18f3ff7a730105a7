#!/usr/bin/env python
"""Create what the servers expect: databases in PostgreSQL and the bucket. Safe to run again.

Environment: ``DATABASE_URL`` (postgresql://user:password@host/postgres), ``DATABASES``, ``BUCKET``,
and boto3's own.
"""

from __future__ import annotations

import os

import boto3
import psycopg2
from psycopg2 import sql


def create_databases(address: str, names: list[str]) -> None:
    connection = psycopg2.connect(address)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        there = {name for (name,) in cursor}
        for name in names:
            if name not in there:
                cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    connection.close()


def create_bucket(name: str) -> None:
    s3 = boto3.client("s3")
    if name not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=name)


if __name__ == "__main__":
    create_databases(os.environ["DATABASE_URL"], os.environ["DATABASES"].split())
    create_bucket(os.environ["BUCKET"])
