"""Where a lake may be: a directory or a bucket, and nothing else."""

import os

import pytest

from penstock.lake.location import LakeError, lake_at
from tests.cases import each


@each("text, url", [
    ("/data/lake/", "/data/lake"), ("lake", os.path.abspath("lake")), ("s3://bucket/lake/", "s3://bucket/lake"),
    ("GS://bucket", "gs://bucket"), ("az://box/a/b", "az://box/a/b"), ("./a:b", os.path.abspath("a:b")),
])  # fmt: skip
def test_a_directory_or_a_bucket(text: str, url: str) -> None:
    lake = lake_at(text)
    assert lake.url == url
    assert lake.is_directory is url.startswith("/")
    assert lake.table("messages") == f"{url}/messages"


@each("text, why", [
    ("s3a://bucket/lake", "begins with s3://, gs://, az://; write s3://"), ("hdfs://host/lake", "a lake is a directory"),
    ("file:///lake", "a lake is a directory"), ("s3a:/bucket", "write s3://"), ("s3://", "names no bucket"),
    ("", "not a directory"), ("a\nb", "not a directory"),
])  # fmt: skip
def test_other_places_are_refused_at_once(text: str, why: str) -> None:
    with pytest.raises(LakeError, match=why):
        lake_at(text)
