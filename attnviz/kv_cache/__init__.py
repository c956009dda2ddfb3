"""Prefill, extend and decode with a cache: what it holds, what it takes, what it saves, and in fewer bits."""

from attnviz.kv_cache.cache import KVCache, Step, feed_all, start, storage_error
from attnviz.kv_cache.layouts import LAYOUTS, Layout
from attnviz.kv_cache.pages import Memory, block_tables, paged, reserved
from attnviz.kv_cache.quantised import STORAGES, Storage

__all__ = [
    "LAYOUTS",
    "STORAGES",
    "KVCache",
    "Layout",
    "Memory",
    "Step",
    "Storage",
    "block_tables",
    "feed_all",
    "paged",
    "reserved",
    "start",
    "storage_error",
]
