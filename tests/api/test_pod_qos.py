"""What pods say to the agent of their node: what is valid, and how problems are named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples

from koord.api.keys import slo
from koord.api.lint import lint_documents
from koord.api.manifest_text import read_documents
from koord.api.pod_qos import QOS_ANNOTATIONS, QOS_LABELS, find_qos_problems

RANGE = f"metadata.annotations[{slo.RESCTRL}].llc.schemata.range"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (slo.RESCTRL, '{"llc":{"schemata":{"range":[0,30]}},"mb":{"schemata":{"percent":20}}}'),
        (slo.RESCTRL, '{"llc":{"schemataPerCache":[{"cacheid":0,"range":[0,100]}]}}'),
        (slo.CPU_QOS, '{"groupIdentity":1}'),
        (slo.CPU_QOS, '{"groupIdentity":-1}'),
        (slo.CPU_BURST, '{"policy":"auto","cpuBurstPercent":10000,"cfsQuotaBurstPercent":100}'),
        (slo.MEMORY_QOS, '{"policy":"auto","wmarkMinAdj":-25,"wmarkRatio":95}'),
        (slo.BLKIO_QOS, '{"blocks":[{"name":"/dev/vda","type":"device","ioCfg":{"readBPS":1}}]}'),
        (slo.NETWORK_QOS, '{"ingressLimit":"50M","egressLimit":30}'),
        (slo.OOM_SCORE_ADJ_SPEC, '{"main":-1000,"side":1000}'),
        (slo.CPU_QOS, '{"groupIdentity":1,"isNewer":{"than":"this"}}'),
    ],
)
def test_valid_annotations(key: str, text: str) -> None:
    assert find_qos_problems({}, {key: text}) == ()


@pytest.mark.parametrize(
    ("key", "text", "field", "message"),
    [
        (slo.RESCTRL, '{"llc":{"schemata":{"range":[30,30]}}}', ".llc.schemata.range", "begin"),
        (slo.RESCTRL, '{"llc":{"schemata":{"range":[0,101]}}}', ".llc.schemata.range[1]", "100"),
        (slo.RESCTRL, '{"llc":{"schemata":{"range":[0]}}}', ".llc.schemata.range", "2"),
        (slo.RESCTRL, '{"mb":{"schemata":{"percent":0}}}', ".mb.schemata.percent", "1"),
        (slo.CPU_QOS, '{"groupIdentity":3}', ".groupIdentity", "2"),
        (slo.CPU_QOS, '{"groupIdentity":"1"}', ".groupIdentity", "whole number"),
        (slo.CPU_BURST, '{"policy":"always"}', ".policy", "auto"),
        (slo.CPU_BURST, '{"cpuBurstPercent":10001}', ".cpuBurstPercent", "10000"),
        (slo.CPU_BURST, '{"cfsQuotaBurstPercent":99}', ".cfsQuotaBurstPercent", "100"),
        (slo.MEMORY_QOS, '{"wmarkMinAdj":51}', ".wmarkMinAdj", "50"),
        (slo.MEMORY_QOS, '{"priority":13}', ".priority", "12"),
        (slo.BLKIO_QOS, '{"blocks":[{"type":"disk"}]}', ".blocks[0].type", "podvolume"),
        (slo.NETWORK_QOS, '{"egressLimit":1.5}', ".egressLimit", ""),
        (slo.OOM_SCORE_ADJ_SPEC, '{"main":1001}', ".main", "1000"),
        (slo.CPU_QOS, "{", "", "is not JSON"),
        (slo.MEMORY_QOS, "[]", "", "mapping"),
    ],
)
def test_problems_name_field_and_bound(key: str, text: str, field: str, message: str) -> None:
    problem = find_qos_problems({}, {key: text})[0]
    assert problem.field.startswith(f"metadata.annotations[{key}]{field}")
    assert message in problem.message


@pytest.mark.parametrize(
    ("key", "value", "problems"),
    [
        (slo.CORE_SCHED_POLICY, "exclusive", 0),
        (slo.CORE_SCHED_POLICY, "", 0),
        (slo.CORE_SCHED_POLICY, "shared", 1),
        (slo.OOM_SCORE_ADJ, "-1000", 0),
        (slo.OOM_SCORE_ADJ, "1001", 1),
        (slo.OOM_SCORE_ADJ, "1e3", 1),
        (slo.OOM_SCORE_ADJ, "--1", 1),
        (slo.OOM_SCORE_ADJ, "", 1),
        (slo.CORE_SCHED_GROUP, "anything", 0),
    ],
)
def test_labels(key: str, value: str, problems: int) -> None:
    found = find_qos_problems({key: value}, {})
    assert [problem.field for problem in found] == problems * [f"metadata.labels[{key}]"]


def test_lint_finds_them_in_templates() -> None:
    text = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  template:
    metadata:
      annotations:
        {slo.RESCTRL}: '{{"llc":{{"schemata":{{"range":[0,30]}}}}}}'
        {slo.CPU_QOS}: '{{"groupIdentity":7}}'
"""
    (checked,) = lint_documents(read_documents(text))
    assert [problem.field for problem in checked.problems] == [
        f"spec.template.metadata.annotations[{slo.CPU_QOS}].groupIdentity"
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@settings(max_examples=examples(25))
@given(
    st.dictionaries(
        st.sampled_from([annotation.key for annotation in QOS_ANNOTATIONS]),
        st.text() | JSON.map(json.dumps),
    ),
    st.dictionaries(st.sampled_from(sorted(QOS_LABELS)), st.text()),
)
def test_whatever_pods_say_is_a_problem_at_most(
    annotations: dict[str, str], labels: dict[str, str]
) -> None:
    for problem in find_qos_problems(labels, annotations):
        assert problem.field.startswith("metadata.")
        assert problem.message
