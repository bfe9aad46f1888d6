"""No secret that is planted in an event comes out in its line, whatever the event and the form."""

import base64
import json
import logging
import string
import urllib.parse
from collections.abc import Callable

from cryptography.fernet import Fernet
from hypothesis import assume, example, given
from hypothesis import strategies as st

from yunhe.control.plugins.service import KEY_MARK
from yunhe.observability import redaction
from yunhe.observability.logs import as_json, as_text, line_of
from yunhe.observability.redaction import keep_out, keep_out_password_of, redact
from yunhe.storage.vault import Vault
from yunhe.trading.accounts.keys import KEY_PREFIX

log = logging.getLogger("yunhe.test")
secrets = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8, max_size=60).filter(
    lambda text: len(set(text.strip())) >= 5
)
words = st.text(string.ascii_letters + string.digits + "-_.~+/!$^", min_size=8, max_size=60).filter(
    lambda text: len(set(text)) >= 5
)
"""Secrets whose value nobody has told of: known by their form alone."""

KNOWN_FORMS: tuple[Callable[[str], str], ...] = (
    str,
    repr,
    json.dumps,
    lambda secret: json.dumps({"x": secret}, ensure_ascii=False),
    lambda secret: f"before{secret}after",
    lambda secret: secret + secret,
    lambda secret: f"?q={urllib.parse.quote(secret, safe='')}&r={urllib.parse.quote_plus(secret)}",
    lambda secret: base64.b64encode(secret.encode()).decode(),
)
UNKNOWN_FORMS: tuple[str, ...] = (
    "Authorization: Bearer {}",
    "(b'authorization', b'Basic {}')",
    '{{"Authorization": "Token {}"}}',
    "Cookie: session={}",
    "curl -H 'authorization: bearer {}'",
    "postgresql://yunhe:{}@db.example/yunhe?sslmode=require",
    "could not connect to redis://:{}@cache:6379/0",
    "host=db user=yunhe password={} dbname=yunhe",
    "PGPASSWORD={} psql",
    "password='{}'",
    'Registration(name="x", token="{}")',
    '{{"client_secret": "{}"}}',
    '"{{\\"api_key\\": \\"{}\\"}}"',
    "https://example.org/?access_token={}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n{}\ncut off",
)


def forget() -> None:
    """Forget the values that were kept out before."""
    redaction._by_head.clear()  # pyright: ignore[reportPrivateUsage]
    redaction._order.clear()  # pyright: ignore[reportPrivateUsage]


def written(text: str, secret: str) -> str:
    """Return all that is written of an event that holds *text* everywhere it can."""
    try:
        try:
            raise KeyError(text)  # noqa: TRY301 - tracebacks are the point
        except KeyError as cause:
            raise RuntimeError(f"while {text}") from cause
    except RuntimeError as error:
        raised = (type(error), error, error.__traceback__)
    facts = {"detail": text, "nested": {"a": [text]}, "password": secret, "plugin_token": secret}
    record = log.makeRecord(log.name, logging.ERROR, "f", 1, "failed: %s", (text,), raised, extra=facts)
    line = line_of(record)
    decoded = json.loads(as_json(line))
    return "\n".join([*map(str, decoded.values()), as_json(line).decode(), as_text(line).decode()])


@given(secrets, st.sampled_from(KNOWN_FORMS))
@example("pass\nword with 'both' \"quotes\" \\", repr)
def test_a_secret_that_the_vault_knows_is_never_written(secret: str, form: Callable[[str], str]) -> None:
    forget()
    shown = (secret, secret.strip(), repr(secret)[1:-1], json.dumps(secret)[1:-1], form(secret))
    harmless = written("nothing", "nothing")
    assume(not any(spelling in harmless for spelling in shown))
    keep_out(secret)
    said = written(form(secret), secret)
    assert not [spelling for spelling in shown if spelling in said]


@given(words, st.sampled_from(UNKNOWN_FORMS))
def test_a_secret_that_nobody_told_of_is_known_by_its_form(secret: str, form: str) -> None:
    forget()
    assume(secret not in written("nothing", "nothing"))
    assert secret not in written(form.format(secret), secret)


@given(
    st.sampled_from([KEY_PREFIX, KEY_MARK + "fake-0123_"]),
    st.text(string.ascii_letters + string.digits + "-_", min_size=43, max_size=43),
    st.sampled_from(["{}", "the key {} is refused", "('{}',)", "/v1/keys/{}?x", "Bearer {}", "key={}"]),
)
def test_an_api_key_is_known_by_its_prefix(prefix: str, text: str, form: str) -> None:
    forget()
    assert text not in written(form.format(prefix + text), text)


def test_what_the_vault_sealed_is_known_by_its_form() -> None:
    forget()
    sealed = Vault(Fernet.generate_key()).seal("secret", "here")
    assert sealed.rpartition(".")[2] not in written(f"the value {sealed} is refused", "x")


@given(secrets, secrets)
def test_where_two_secrets_overlap_nothing_of_either_is_left(first: str, second: str) -> None:
    forget()
    joined = first.strip() + second.strip()
    keep_out(joined[: len(joined) // 2 + 2])
    keep_out(joined[len(joined) // 2 - 2 :])
    assert redact(f"[{joined}]") == "[***]"


@given(st.text(string.ascii_letters + string.punctuation, min_size=4, max_size=30))
def test_the_password_of_a_database_is_masked_by_value(password: str) -> None:
    forget()
    keep_out_password_of(f"postgresql://yunhe:{urllib.parse.quote(password, safe='')}@db/yunhe")
    assert password not in redact(f"the server said: {password}!").removesuffix("!")


@given(st.lists(st.sampled_from(["job", "pool lab", "is", "ready", "3.5 GiB", "a: b", "x=1", "~/.yunhe"])))
def test_a_sentence_without_secrets_stays_as_it_is(parts: list[str]) -> None:
    forget()
    sentence = " ".join(parts)
    assert redact(sentence) == sentence
