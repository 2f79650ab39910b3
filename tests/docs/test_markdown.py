"""The parser of pages."""

import pytest
from tests.docs.markdown import Run, anchors_of, links_of, parse_page

PAGE = """\
# A page, of course

<!-- run: on demand -->
```console
$ make demo
output
$ kubectl get \\
    pods
```

Text ends what a comment says.

```yaml file.yaml
a: 1
```

<!-- run: no, it is yours -->

```yaml
b: 2
```

[a](other.md#part) and [b](https://example.com/x)

````text
```yaml
[not](a-link)
```
````
"""


@pytest.fixture
def blocks(tmp_path):
    return parse(tmp_path, PAGE)


def parse(directory, text):
    path = directory / "page.md"
    path.write_text(text, encoding="utf-8")
    return parse_page(path, "page.md")


def test_blocks_have_line_language_and_title(blocks):
    assert [(str(b), b.language, b.title) for b in blocks] == [
        ("page.md:4", "console", ""),
        ("page.md:13", "yaml", "file.yaml"),
        ("page.md:19", "yaml", ""),
        ("page.md:25", "text", ""),
    ]


def test_comment_applies_to_the_next_block_only(blocks):
    assert [b.run for b in blocks] == [Run.ON_DEMAND, Run.ALWAYS, Run.NEVER, Run.ALWAYS]


def test_commands_follow_a_prompt_and_may_continue(blocks):
    assert blocks[0].commands == ["make demo", "kubectl get \\\n    pods"]


def test_links_and_anchors():
    assert links_of(PAGE) == ["other.md#part", "https://example.com/x"]
    assert anchors_of(PAGE) == {"a-page-of-course"}


@pytest.mark.parametrize(
    "text", ["<!-- run: no -->\n", "<!-- run: later -->\n", "<!-- run: no, -->\n"]
)
def test_comment_without_a_reason_is_an_error(tmp_path, text):
    with pytest.raises(ValueError, match=r"page\.md:1: "):
        parse(tmp_path, text)


def test_block_without_an_end_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"page\.md:2: the block has no end"):
        parse(tmp_path, "\n```yaml\na: 1\n")
