"""Judging names and values by themselves: what a name promises, and whether a value is a credential."""

from __future__ import annotations

import re
from typing import Literal

# Names.

Strength = Literal["password", "token", "header", "key", "none"]
"""What a name promises; `key` is one that stands alone and is a token only behind certain words."""

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passwort", "passcode", "kennwort", "pwd", "pw", "psk")
_PASS_WORDS = frozenset(
    {
        "pass", "dbpass", "storepass", "keypass", "userpass", "rootpass", "sshpass", "ftppass", "mailpass",
        "smtppass", "pgpass", "adminpass",
    }
)  # fmt: skip
_TOKEN_WORDS = frozenset(
    {
        "token", "secret", "secrets", "credential", "credentials", "creds", "auth", "sig", "signature",
        "authtoken", "accesstoken", "clientsecret", "oauth", "apikey", "accesskey", "secretkey", "privatekey",
        "accountkey", "sharedkey", "signingkey", "csrftoken", "verifier", "apisecret",
    }
)  # fmt: skip
KEY_OWNERS = frozenset(
    {
        "api", "access", "account", "private", "signing", "secret", "encryption", "encrypt", "decryption",
        "shared", "master", "storage", "subscription", "service", "auth", "hmac", "aes", "client", "consumer",
        "app", "application", "webhook", "session", "jwt", "admin", "deploy", "server", "license", "sas",
        "host", "function", "ssh", "gpg", "ingest", "preshared",
    }
)  # fmt: skip
_PAGES = frozenset({"page", "next", "previous", "continuation", "continue", "cursor", "pagination", "sync", "resume"})
"""A token behind one of these names a place in a list."""
_TAILS = frozenset(
    {
        "id", "value", "bytes", "base64", "b64", "hex", "raw", "plain", "prod", "live", "test", "dev", "primary",
        "secondary", "current", "new", "old", "base", "data", "pem",
    }
)  # fmt: skip


def strength_of(name: str) -> Strength:
    """What a name promises, by its last word; the words after it in `_TAILS` and numbers do not count."""
    words = [word.lower() for word in _PART.findall(name)]
    if words[-1:] == ["id"] and words[-2:-1] in (["key"], ["token"]) and words[0] not in ("access", "private", "aws"):
        return "none"  # which key it is, not the key
    while len(words) > 1 and (words[-1] in _TAILS or words[-1].isdigit()):
        words.pop()
    if not words:
        return "none"
    last = words[-1]
    if "public key" in " ".join(words) or (last == "token" and words[-2:-1] and words[-2] in _PAGES):
        return "none"
    if last.endswith(_PASSWORD_ENDS) or last in _PASS_WORDS:
        return "password"
    if last == "authorization":
        return "header"
    if last in _TOKEN_WORDS or last.endswith(("secret", "apikey", "authtoken")):
        return "token"
    if last == "key":
        return "key" if len(words) == 1 else "token" if words[-2] in KEY_OWNERS else "none"
    return "none"


# Values: credentials, or what else stands behind such a name. First the words that are never one.

_TYPES = frozenset(
    {
        "none", "null", "nil", "true", "false", "str", "string", "int", "bytes", "secretstr", "optional", "any",
        "undefined", "text", "varchar", "char", "object",
    }
)  # fmt: skip
_NAMES = frozenset({"secret", "token", "key", "password", "value"})
_FAULTS = frozenset({"invalid", "missing", "required", "no", "wrong", "incorrect", "expired"})
_REMOVED = frozenset({"redacted", "masked", "hidden", "removed"})
_NEVER = frozenset(
    {
        *_TYPES, *_NAMES, *_FAULTS, *_REMOVED, "empty", "yes", "on", "off", "changeme", "xxx", "passwd", "pass", "pwd",
        "apikey", "api_key", "your_password", "your-password",
    }
)  # fmt: skip
_MESSAGE = frozenset(
    {
        *_NAMES, *_FAULTS, "secrets", "keys", "must", "is", "are", "was", "your", "enter", "here", "for", "of", "bad",
        "unknown", "not",
    }
)  # fmt: skip
"""Words of messages and labels."""
_MARKS = frozenset(
    {
        *_REMOVED, "filtered", "sanitized", "scrubbed", "obfuscated", "censored", "omitted", "withheld", "stripped",
        "protected", "suppressed", "concealed", "placeholder", "unchanged", "hashed", "confirmed", "nullable", "todo",
        "tbd", "fixme", "public", "prompt", "ask", "stdin", "n/a", "not set", "not-set", "not_set", "unset",
    }
)  # fmt: skip
"""What programs and authors write instead of a credential."""

_DIGIT = re.compile(r"[0-9]")
# Every pattern reads a value once: runs are possessive, and no two parts of a pattern can share a character.
_REFERENCE = re.compile(
    r"\$[A-Za-z_{(]|%[sr(]|%\w++%$|[*.xX•?]++$|<|\{|(?i:\[masked\]|\[redacted\])|!|@\w++@$|#\{|\(|="
    r"|(?:~|\.{1,2})?/[\w.-]*+(?:/[\w.@-]*+)*+$|[A-Za-z]:\\|(?:https?|file|vault|secret|arn|op|ref)[:+]"  # paths
    r"|[A-Z]++(?:_[A-Z0-9]++)++$"  # the name of a variable
)
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++$")
_LETTERS = re.compile(r"[A-Za-z_-]++:?$", re.IGNORECASE)
_SLUG_NAME = re.compile(
    r"(?:pass(?:word|wd|phrase)?+|pwd|token|secret|key|credentials?+|auth)(?:[_-]|:?$)", re.IGNORECASE
)
_NAME_ENDS = (
    "pass", "password", "passwd", "passphrase", "pwd", "token", "secret", "key", "credential", "credentials", "auth"
)  # fmt: skip
_NUMBER = re.compile(r"[-+]?[\d_,.]++%?[a-z]?$")
# No word has twenty letters.
_SLUG = re.compile(r"[a-z]{1,19}+(?:[-_.:/](?:[a-z]{1,19}+|\d{1,4}+(?![a-z0-9]))|\d{1,4}+(?![a-z0-9]))*+[-_.:/]?+$")
_LETTER = re.compile(r"[^\W\d_]")
_TOKEN_CHARS = re.compile(r"[\w.~+/=:%!@#$^*?&-]++$", re.ASCII)
_QUOTED_CHARS = re.compile(r"[!-~]++$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]{2,}+=(?![=\s]|$)")
_WORDS = re.compile(r"[\w'-]{2,20}+(?: [\w'-]{1,20}+){1,11}+$")
_TURN = re.compile(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])")
_MIXED = 6
"""How often capitals and small letters must meet in a token without digits, as they do in random text."""


_LEAST = {(False, False): 3, (False, True): 6, (True, False): 2, (True, True): 4}
"""How long a password of letters and digits is at least, by whether it stands in quotes, and in prose."""


def is_reference(value: str, *, digit: bool) -> bool:
    """Whether it is a variable, a path, a type or a word of messages. `digit` is whether there is one in it."""
    if value.isalpha() and value.isascii():
        lower = value.lower()
        return lower in _NEVER or lower.endswith(_NAME_ENDS) or not lower.strip("x")
    if _REFERENCE.match(value):
        return True
    if digit:
        return False  # the words below have none
    return value.lower().strip(".,:;") in _NEVER or bool(_LETTERS.match(value) and _SLUG_NAME.search(value))


def is_password(value: str, *, sign: str, quoted: bool = False) -> bool:
    """Whether it is one, behind a name that says password.

    `sign` is what stands between: `=`, `:`, `flag` (a command line), `prose`.
    """
    if value.isalnum() and value[0].isalpha() and value.isascii() and not value.isalpha():
        return len(value) >= _LEAST[quoted, sign == "prose"]  # as below, for what is seen most
    digit = bool(_DIGIT.search(value))
    if quoted:
        if len(value) < (4 if sign == "prose" else 2) or value[0] in ",;)]}+ " or is_reference(value, digit=digit):
            return False
        return sign != "prose" or digit
    certain = sign in ("=", "flag")
    if len(value) < 3 or not (digit or certain) or is_reference(value, digit=digit):
        return False
    if not value[0].isalpha() and _NUMBER.match(value):
        return certain and value.isdigit() and len(value) >= 6
    if certain:
        return digit or "." not in value or not _ATTRIBUTE.match(value)
    return bool(_LETTER.search(value)) and (sign == ":" or len(value) >= 6)


def is_token(value: str, *, quoted: bool, sign: str = "=") -> bool:
    """Whether it is one, behind a name that says token, secret, key or the like: long, and like nothing else."""
    if len(value) < (16 if sign == "prose" else 8 if quoted else 12):
        return False
    digit = bool(_DIGIT.search(value))
    if digit:
        if not _LETTER.search(value):
            return False
    elif value.islower() or len(value) < 16 or len(_TURN.findall(value)) < _MIXED:
        return False
    if not (_QUOTED_CHARS if quoted and len(value) >= 32 else _TOKEN_CHARS).match(value):
        return False
    return not (
        is_reference(value, digit=digit)
        or _NUMBER.match(value)
        or _SLUG.match(value)
        or _ATTRIBUTE.match(value)
        or _ASSIGNMENT.match(value)
        or ("..." in value and len(value) < 24)  # its ends are shown
    )


def is_passphrase(value: str, *, least: int) -> bool:
    """Whether it is one of at least so many words, behind a name that says secret or key: words, but no sentence."""
    if value.count(" ") < least - 1 or not _WORDS.match(value):
        return False
    return _MESSAGE.isdisjoint(value.lower().split(" "))


# Placeholders, marks of other programs, labels and messages.

_MAX_LENGTH = 160

# All of a value; every run is bounded.
_SHAPE = re.compile(
    r"""
    %(?:\[\d\])?[sdrvqw@] | %\(\w{1,40}\)[sdr] | %\w{1,40}% | %\w{1,20}\(.{1,60}\)%  # formats, batch files, frameworks
    | %(?:5[Bb]|3[Cc]|7[Bb])[A-Za-z0-9_%+-]{0,60}%(?:5[Dd]|3[Ee]|7[Dd]) | (?:%2[aA]){3,40}  # in a query
    | \$[A-Za-z_]{1,60} | \$[A-Z][A-Z0-9_]{0,60} | \$\$?\(.{1,80}\) | \$\w{1,20}:\w{1,60}  # shells
    | \$[a-z_]\w{0,40}[.\[>-].{1,60} | \$\{[^{}:]{1,80}(?::[-?+=][^{}\d]{0,60})?\} | @Microsoft\.KeyVault\(.{1,120}
    | \$?\{\{.{0,80}\}\} | [#@$]?\{[^{}\d:]{0,80}(?:![rsa])?\} | \{\d?\} | \\\(.{1,80}\)  # templates
    | <{1,2}[^<>]{0,80}>{1,2} | &lt;.{0,80}&gt; | @\w{1,40}@ | __[A-Za-z_]{1,40}__
    | \[[^\]\d]{0,60}\] | \([^)\d]{0,60}\) | \{\{ | <[A-Za-z%=-]{1,40}  # the last two go on behind a space
    """,
    re.VERBOSE,
)
_FILLING = re.compile(
    r"""
    [*xX\u2022\u25cf\u00b7\u2219\u2217\u25aa\u25a0\u2588.\u2026?_#-]{1,160}
    | [\w.-]{0,16}?(?:[xX]{5,}|\*{3}|\u2022{3}|\u2026)[-xX*\u2022._]{0,120}[A-Za-z0-9]{0,4}  # the ends of it are shown
    | T[0Xx]{6,12}/B[0Xx]{6,12}/[0Xx]{6,40} | x{3,12}/[\w/]{1,40}
    """,
    re.VERBOSE,
)
_RULES = re.compile(r"[a-z_]{2,24}(?::[\w,]{1,24})?(?:\|[a-z_]{2,24}(?::[\w,]{1,24})?){1,8}")  # required|min:8
_EXAMPLE = re.compile(
    r"(?:YOUR|your|Your)[_/-][A-Za-z0-9_/-]{1,60}"
    r"|(?:[A-Z0-9]{1,20}_){0,5}(?:PASS(?:WORD|WD|PHRASE)?|PWD|PW|TOKEN|SECRET|KEY|PAT)(?:_[A-Z]{1,12}){0,2}"
)
_FILLED = re.compile(r"[xX]{3}|\*\*|[^\x00-\x7f]|[-.?_#*]$")
_EDGES = "*[](){}<>#_-.!:?%'\"~=/| "
_TERMS = (
    r"pass(?:words?|wd|phrases?|code|wort|w[oö]rter|ord)?|p[wd]d|pswd|pwd|kennw[oö]rt(?:er)?|mots? de passe|"
    r"contrase[nñ]as?|senhas?|wachtwoord(?:en)?|l[oö]senord(?:et)?|has[lł][oa]|hesl[oa]|salasana|jelsz[oó]|parola|"
    r"[sş]ifre(?:niz|yi)?|adgangskode|geheimnis(?:se)?|парол\w{1,3}|密[码碼钥鑰]|口令|令牌|パスワード|비밀번호|암호|"
    r"סיסמ\w{1,2}|รหัสผ่าน|mật khẩu|kata sandi|lozinka|slaptažodis"
)
_CALLED = (
    rf"{_TERMS}|tokens?|(?:api|access|secret|private|auth)[ _-]?(?:keys?|tokens?)|"
    r"(?:api|client|app)[ _-]?secret|credentials?"
)
_LONE = re.compile(
    rf"(?:(?:your|my|the|new|old|current|enter|insert|some)[ _-]?)?(?:{_CALLED})"
    r"(?:[ _-]?(?:here|goes[ _-]here))?|(?:replace|fill|insert|put|set)[ _-]?(?:me|this|here)(?:[ _-]in)?",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?:[^\W\d_]['\u2019\w-]{0,23}|\d{1,3}(?:[-\u2013]\d{1,3})?\+?|[&/\u2013\u2014-])")
_SPEAKS = re.compile(
    rf"(?:{_CALLED}|secrets?|keys?|\w{{0,16}}(?:schl[uü]ssel|passwort|token)|clés?|claves?|chaves?|chiave|segreto|secreto|"
    r"jetons?|sleutel|ключ\w{0,3}|токен\w{0,3}|"
    r"must|required|invalid|missing|incorrect|wrong|expired|cannot|leave|empty|please|enter|your|you|too|characters|field|least|"
    r"minimum|forgot|forgotten|sensitive|value|hidden|redacted|removed|forget|confirm|repeat|retype|optional|blank|match|valid|should|unknown)",
    re.IGNORECASE,
)
"""A word of labels and messages; a passphrase rarely has one."""
_SEVERAL = re.compile(r"\bmots? de passe\b|mật khẩu|kata sandi", re.IGNORECASE)
_FOREIGN = re.compile("[^0-9A-Za-z]{0,80}[\u0370-\u1fff\u3040-\ud7ff][^0-9A-Za-z]{0,80}")
_LABEL_ENDS = ("?", ":", "...", "…")
_USERS = frozenset({"user", "username", "usr", "login", "name", "youruser", "yourusername", "myuser", "id"})


def is_placeholder(value: str) -> bool:
    """Whether a value stands where a credential would, and is none: `${PASSWORD}`, `****`, `Your password`."""
    if len(value) > _MAX_LENGTH:
        return False
    if _FILLED.search(value) and _FILLING.fullmatch(value):
        return True
    first = value[:1]
    if first.isalnum():
        if (first.isupper() or first == "y") and _EXAMPLE.fullmatch(value):
            return True
        if "|" in value and _RULES.fullmatch(value):
            return True
    elif _SHAPE.fullmatch(value):
        return True
    if value.isascii() and " " not in value and _DIGIT.search(value):
        return False  # what follows has none, or is several words
    core = value.strip(_EDGES)
    return core.lower() in _MARKS or bool(_LONE.fullmatch(core)) or is_label(value)


def is_label(value: str) -> bool:
    """Whether it is several words of a label or a message: `Confirm password`, `Must have 8 characters`."""
    if not value.isascii() and _FOREIGN.fullmatch(value):
        return True
    words = value.strip("¿¡([ ").split()
    if len(words) < 2:
        return value.endswith(_LABEL_ENDS) and bool(_SPEAKS.fullmatch(value.rstrip("?:.…")))
    bare = [word.strip('.,:;!?…()"“”«»') for word in words]
    if not all(_WORD.fullmatch(word) for word in bare if word):
        return False
    if value.endswith(_LABEL_ENDS) or any(_SPEAKS.fullmatch(word) for word in bare):
        return True
    return bool(_SEVERAL.search(value))


def is_placeholder_login(user: str, password: str) -> bool:
    """The same for the two parts of a login in an address: `USER:PASSWORD`, `%s:%s`, `user:secret`."""
    if is_placeholder(password):
        return True
    name = user.strip(_EDGES).lower().replace("_", "").replace("-", "")
    return password.lower() in ("secret", "key", "pw") and (name in _USERS or is_placeholder(user))
