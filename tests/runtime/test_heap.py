"""One heap for all threads."""

import platform

from koord.runtime.heap import share_heap


def test_glibc_is_told_to_share_one_heap_and_others_are_left_alone() -> None:
    assert share_heap() is (platform.libc_ver()[0] == "glibc")
