#!/usr/bin/env python
"""Create what the servers expect: roles and databases in PostgreSQL, and buckets; again is safe.

Environment: ``DATABASE_URL`` (the superuser's), ``DATABASES`` and for each ``NAME_DB_PASSWORD``,
``BUCKETS``, and libpq's and boto3's own.
"""

from __future__ import annotations

import os
from contextlib import suppress

import boto3
import psycopg2
from psycopg2 import errors, sql

# A database is of the role of its name, and no other role connects to it.
STEPS = (
    "CREATE ROLE {0} LOGIN",
    "CREATE DATABASE {0} OWNER {0}",
    "ALTER ROLE {0} PASSWORD {1}",
    "REVOKE ALL ON DATABASE {0} FROM PUBLIC",
)
connection = psycopg2.connect(os.environ["DATABASE_URL"])
connection.autocommit = True
for name in os.environ["DATABASES"].split():
    password = sql.Literal(os.environ[f"{name.upper()}_DB_PASSWORD"])
    for step in map(sql.SQL, STEPS):
        with suppress(errors.DuplicateObject, errors.DuplicateDatabase):
            connection.cursor().execute(step.format(sql.Identifier(name), password))
connection.close()

for bucket in os.environ["BUCKETS"].split():
    s3 = boto3.client("s3")
    if bucket not in {one["Name"] for one in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=bucket)
