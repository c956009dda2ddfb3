"""Streamed attention maps: any region, pooled to the size of a screen, in memory of one block of query rows."""

from attnviz.maps.draw import MASKED, MAX_SIDE, NO_KEY, STAGES, VALUE, PooledMap, attention_map, stage_map

__all__ = ["MASKED", "MAX_SIDE", "NO_KEY", "STAGES", "VALUE", "PooledMap", "attention_map", "stage_map"]
