"""What stands where a credential would stand, and is none: placeholders, marks of other programs, labels, messages."""

from __future__ import annotations

import re

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
_DIGIT = re.compile(r"[0-9]")
_EDGES = "*[](){}<>#_-.!:?%'\"~=/| "
_MARKS = frozenset(
    {
        "redacted", "filtered", "masked", "hidden", "removed", "sanitized", "scrubbed", "obfuscated", "censored",
        "omitted", "withheld", "stripped", "protected", "suppressed", "concealed", "placeholder", "unchanged",
        "hashed", "confirmed", "nullable", "todo", "tbd", "fixme", "public", "prompt", "ask", "stdin", "n/a",
        "not set", "not-set", "not_set", "unset",
    }
)  # fmt: skip
"""What programs and authors put in the place of a credential."""
_TERMS = (
    r"pass(?:words?|wd|phrases?|code|wort|w[oö]rter|ord)?|p[wd]d|pswd|pwd|kennw[oö]rt(?:er)?|mots? de passe|"
    r"contrase[nñ]as?|senhas?|wachtwoord(?:en)?|l[oö]senord(?:et)?|has[lł][oa]|hesl[oa]|salasana|jelsz[oó]|parola|"
    r"[sş]ifre(?:niz|yi)?|adgangskode|geheimnis(?:se)?|парол\w{1,3}|密[码碼钥鑰]|口令|令牌|パスワード|비밀번호|암호|"
    r"סיסמ\w{1,2}|รหัสผ่าน|mật khẩu|kata sandi|lozinka|slaptažodis"
)
_NAMES = (
    rf"{_TERMS}|tokens?|(?:api|access|secret|private|auth)[ _-]?(?:keys?|tokens?)|"
    r"(?:api|client|app)[ _-]?secret|credentials?"
)
_LONE = re.compile(
    rf"(?:(?:your|my|the|new|old|current|enter|insert|some)[ _-]?)?(?:{_NAMES})"
    r"(?:[ _-]?(?:here|goes[ _-]here))?|(?:replace|fill|insert|put|set)[ _-]?(?:me|this|here)(?:[ _-]in)?",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?:[^\W\d_]['\u2019\w-]{0,23}|\d{1,3}(?:[-\u2013]\d{1,3})?\+?|[&/\u2013\u2014-])")
_SPEAKS = re.compile(
    rf"(?:{_NAMES}|secrets?|keys?|\w{{0,16}}(?:schl[uü]ssel|passwort|token)|clés?|claves?|chaves?|chiave|segreto|secreto|"
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


__all__ = ["is_label", "is_placeholder", "is_placeholder_login"]
