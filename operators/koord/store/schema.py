"""The tables of a store, and the dictionary with which the bodies of its rows are deflated.

A file says by its application id that it is a store, and by its user version which tables it has.
The dictionary is kept in the file: those of later versions may differ.
"""

from typing import Final

APPLICATION: Final = 0x6B6F6F72
"""``koor``, as the application id of the file."""
VERSION: Final = 1
TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # Order is (term, seq). A term is the leader's number, or a higher one if that was used before.
    (
        "CREATE TABLE record (term INTEGER, seq INTEGER, at INTEGER, kind TEXT, namespace TEXT,"
        " trace TEXT, unit TEXT, code TEXT, body BLOB, PRIMARY KEY (term, seq)) WITHOUT ROWID"
    ),
    "CREATE INDEX record_trace ON record (trace, at)",
    "CREATE INDEX record_namespace ON record (namespace, at)",
    "CREATE INDEX record_at ON record (at)",
    # Units: when the first and the last record of one is, and when it was over (null: it goes on).
    (
        "CREATE TABLE trace (trace TEXT PRIMARY KEY, namespace TEXT, first INTEGER, last INTEGER,"
        " over INTEGER) WITHOUT ROWID"
    ),
    "CREATE INDEX trace_over ON trace (over, first)",
    # Names under which a unit is found: of its gangs, its pods, and the owner of its pods.
    (
        "CREATE TABLE name (namespace TEXT, name TEXT, kind TEXT, trace TEXT,"
        " PRIMARY KEY (namespace, name, kind, trace)) WITHOUT ROWID"
    ),
    "CREATE INDEX name_trace ON name (trace)",
    # What pods held. `until` of one that goes on is when it was seen last.
    (
        "CREATE TABLE segment (uid TEXT, start INTEGER, until INTEGER, is_open INTEGER,"
        " namespace TEXT, user TEXT, body BLOB, PRIMARY KEY (uid, start)) WITHOUT ROWID"
    ),
    "CREATE INDEX segment_until ON segment (is_open, until)",
    "CREATE INDEX segment_namespace ON segment (namespace, until)",
    # Sums of segments that are closed. Amounts are JSON: they exceed 64 bits.
    (
        "CREATE TABLE hour (hour INTEGER, namespace TEXT, quota TEXT, user TEXT, model TEXT,"
        " band TEXT, held INTEGER, estimated INTEGER, amounts TEXT,"
        " PRIMARY KEY (hour, namespace, quota, user, model, band)) WITHOUT ROWID"
    ),
)
DICTIONARY: Final = (
    b'{"uid":"holder":{"namespace":"team-","pod":"-worker-","quota":"","user":"","owner":"team-",'
    b'"node":"gpu-","model":"NVIDIA-H100-80GB-HBM3","band":"koord-prod"},"start":179,"end":179,'
    b'"milli_gpus":8000,"basis":"Status","amounts":[["cpu",8000],["memory",68719476736]],"flags":[]'
    b'}{"term":1,"seq":1,"at":"2026-11-25T08:00:00.000Z","mono":1,"kind":"Flags","flag":"s","value"'
    b':"","by":""}"kind":"Gap","from":1,"to":1,"count":1}"kind":"Term","holder":"koord-operators-"}'
    b'"kind":"Changed","changes":[{"field":"minMember","from":"1","to":"2"}],"quota":null,'
    b'"kind":"Degraded","kind":"TimedOut","kind":"Held","kind":"Released","kind":"VictimGone",'
    b'"policy":"preemption","pod":"","left":0,"tookMs":1,"kind":"Evicted","policy":"reclaim","by":'
    b'"team-","count":1,"pods":[{"name":"","uid":"","node":"gpu-"}],"closed":null}"kind":'
    b'"Preempting","policy":"preemption","victims":8,"outcome":"","kind":"Gone","kind":"Ended",'
    b'"class":"Quota","code":"QuotaExceeded","fields":{"quota":"team-","resource":"nvidia.com/gpu",'
    b'"request":8,"used":0,"limit":0},"nodes":null,"text":"Quota team- would exceed its max of '
    b'nvidia.com/gpu","kind":"Attempt","unit":{"key":"team-","attempt":1,"position":1,"of":100,'
    b'"cycle":1,"cycleMicros":1,"class":"Room","code":"InsufficientNodes","fields":{"want":8,"fit":'
    b'0,"nodes":100,"first":"team-","resource":"nvidia.com/gpu","request":8,"moreNodes":1,"context"'
    b':null},"nodes":{"total":100,"fit":0,"causes":[{"cause":"Insufficient nvidia.com/gpu","nodes":'
    b'100,"examples":null}]},"text":"Room for 0 of 8 pods. All 100 nodes lack 8 free '
    b'nvidia.com/gpu (team-). 8 more empty nodes as large as the largest one would be enough.",'
    b'"repeats":0,"firstAt":"2026-11-25T08:00:00.000Z","lastAt":"2026-11-25T08:00:00.000Z","closed"'
    b':{"seq":1,"repeats":1,"lastAt":"2026-11-25T08:00:00.000Z","position":1}}"kind":"Running",'
    b'"kind":"Complete","unit":"since":"2026-11-25T08:00:00.000Z","closed":null}"kind":"Committed",'
    b'"planId":"","releases":8,"binds":8,"leftToOthers":0,"notBound":0,"tookMs":100,"failures":[],'
    b'"moreFailures":0,"closed":null}"kind":"Placed","planId":"","domain":["spine-","block-",'
    b'"rack-"],"created":"2026-11-25T08:00:00.000Z","complete":"2026-11-25T08:00:00.000Z","due":'
    b'"2026-11-25T08:00:00.000Z","ahead":0,"cycle":1,"quotas":["team-"],"nodes":[{"node":"gpu-",'
    b'"pods":1,"names":["-worker-0"]},{"node":"gpu-","pods":1,"names":["-1"]}],"moreNodes":0,"score'
    b'":[],"closed":null}{"term":1,"seq":1,"at":"2026-11-25T08:00:00.000Z","mono":1000,"kind":'
    b'"Seen","unit":{"key":"team-a/train","namespace":"team-a","names":["team-a/train"],"owner":'
    b'{"kind":"Job","name":"train","uid":""},"uids":["","",""],"pods":8,"required":8,"priority":'
    b'9000,"asks":{"cpu":"64","memory":"512Gi","nvidia.com/gpu":"64"}},"trace":"","since":'
    b'"2026-11-25T08:00:00.000Z","closed":null}'
)
"""What rows have in common, the most frequent last."""
