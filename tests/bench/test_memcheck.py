"""What valgrind says is read: errors of compiled code are told from those of libraries, leaks are left out."""

from tilework.bench.checks import memcheck

FRAME = "<frame><ip>0x1</ip>{}</frame>"
ERROR = "<error><kind>{}</kind><what>{}</what><stack>{}</stack></error>"
NAMED = FRAME.format("<obj>/usr/lib/libpython3.so</obj><fn>Py_INCREF</fn>")
BARE = FRAME.format("")


def log(*errors):
    return f"<?xml version='1.0'?><valgrindoutput><pid>1</pid>{''.join(errors)}</valgrindoutput>\n"


def test_compiled_code_has_no_name():
    text = log(
        ERROR.format("UninitCondition", "Conditional jump", NAMED + BARE),
        ERROR.format("InvalidRead", "Invalid read of size 8", BARE + NAMED),
        ERROR.format("Leak_DefinitelyLost", "lost", BARE),
    )
    python, ours = memcheck.read(text)
    assert (python.kind, python.compiled, python.frames) == ("UninitCondition", False, ("Py_INCREF", "???"))
    assert (ours.kind, ours.compiled, ours.text) == ("InvalidRead", True, "Invalid read of size 8")
    assert ours.frames == ("???", "Py_INCREF")


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes():
    text = log(ERROR.format("InvalidRead", "a", BARE), ERROR.format("InvalidWrite", "b", BARE))
    assert [f.kind for f in memcheck.read(text[:-40])] == ["InvalidRead"]
    assert list(memcheck.read("")) == []
    assert list(memcheck.read(log())) == []
