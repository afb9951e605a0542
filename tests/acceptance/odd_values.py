"""Values that people, tools and attackers put into files, and small edits of valid ones."""

from typing import Any, Final

from hypothesis import strategies as st

NUMBERS: Final = (
    *(0, -1, 1, 3, 7, 63, 64, 100, 253, 1000, 65_535, 65_536, 1_000_000, 1_000_001, 2**31 - 1, 2**31, 2**63 - 1, 2**63),
    *(-(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1.5, 1e-9, 1e22, 1e308, float("inf"), float("-inf"), float("nan")),
)
_WORDS: Final = r"""
- -a a- A a.b a_b a/b / // .. . ~ 0 00 1e3 [red] <b> ` |
true null yes nan .nan 1_000 0x1f 1:30 2024-01-01 * & ! % @ # ' "
${x} $(PATH) %s {0} \ a,b a=b a:b a;b ::error::x << config default
kube-system kubernetes.io/x nvidia.com/gpu requests.nvidia.com/gpu x/y/z example.com/ /x
1 -1 0.5 100m 1m 0.1m 1n 1Ki 1Ei 9Ei 1E Gi 1gi +1 1e .5 5. 1e9 1s 0s -1s 1h1m 1d 100y 1.5h 999999h
10.0.0.0/8 10.0.0.1/8 0.0.0.0/0 ::/0 10.0.0.0/33 300.1.1.1 10.0.0.0
example.com EXAMPLE.com *.example.com example.com. x:0 x:99999 x:y:z x@y
image Image:1 a/b:tag a/b@sha256:0 reg:5000/a https://x/y s3://b s3:// s3:///x gs://b/c abfs://x oci://x/y
file:///etc/passwd ../../etc/passwd /etc/passwd p5.48xlarge H100 h100 cpu any none eu-west-1
system:masters cluster-admin 5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d arn:aws:iam::1:role/x 1.36 v1
"""
TEXTS: Final = (
    *_WORDS.split(),
    *("", " ", " x", "x ", "a b", "a/b c", "1Gi ", "a" * 63, "a" * 64, "a" * 253, "a" * 254, "a." * 200, "x" * 5000),
    *("é", "日本語", "👩‍💻", "ﬁ", "İ", "ß", "\u200b", "\u202e", "\u2028", "\ufeff", "\x00", "\x1b[2J", "\x7f", "\x85"),
    *("a\nb", "a\r\nb", "\t", "\n", "{{ .x }}"),
)
EMPTY: Final[tuple[Any, ...]] = (
    *(None, True, False, [], {}, [None], [[]], {"": ""}, [{}], {"secure": "AAAB"}, {"secure": 1}),
)
ODD: Final[st.SearchStrategy[Any]] = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.sampled_from(EMPTY), st.text(max_size=6)
)


def nested(levels: int, value: Any, *, mappings: bool) -> Any:
    """The value inside so many lists or mappings."""
    for _ in range(levels):
        value = {"a": value} if mappings else [value]
    return value


@st.composite
def near(draw: st.DrawFn, value: Any) -> Any:
    """A value that a small edit makes of another one, as a slip of the hand does."""
    if isinstance(value, bool) or value is None:
        return draw(st.sampled_from([not value, str(value), None]))
    if isinstance(value, int | float):
        edited = (value + 1, value - 1, -value, value * 2, value * 10, value * 1000, value / 2, str(value), 0)
        return draw(st.sampled_from(edited))
    if not isinstance(value, str):
        return [value]
    at = draw(st.integers(0, len(value)))
    sign = draw(st.sampled_from([*"aA0-_./: ,@*é", "\u200b", "i", "m", "Gi"]))
    edited_texts = (
        *(value[:at] + sign + value[at:], value[:at] + value[at + 1 :], value[:at], value[at:], value.upper()),
        *(
            value * 2,
            value * 40,
            value + sign,
            sign + value,
            f" {value}",
            f"{value}\n",
            value.replace("-", "_"),
            [value],
        ),
    )
    return draw(st.sampled_from(edited_texts))
