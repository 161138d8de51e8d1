"""Auth files in which each token has the name of its only role."""

from pathlib import Path

from shared.auth.tokens import digest

ENTRY = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{0}"]\n'
CREATOR = '[[role]]\nname = "creator"\nrules = [{ verbs = ["create"], topics = ["made*"] }]\n'
KEEPER = '[[role]]\nname = "keeper"\nrules = [{ verbs = ["admin"] }, { verbs = ["read"], topics = ["orders*"] }]\n'
OWNER = (
    '[[role]]\nname = "owner"\nrules = [{ verbs = ["create", "configure", "publish", "act"], topics = ["owned*"] }]\n'
)
ROLE = (
    CREATOR
    + KEEPER
    + OWNER
    + '[[role]]\nname = "orders"\nrules = [{ verbs = ["publish", "consume"], topics = ["orders*"] }]\n'
)


def token(name: str) -> str:
    """Return the token of a role."""
    return "pst_" + name.ljust(43, "_")


def write(path: Path, *names: str) -> None:
    """Write an auth file with a token for each of these roles: of those above, and of the built-in ones."""
    path.write_text(ROLE + "".join(ENTRY.format(name, digest(token(name).encode())) for name in names))
    path.chmod(0o600)


def bearer(name: str) -> dict[str, str]:
    """Return the header that shows the token of a role."""
    return {"Authorization": f"Bearer {token(name)}"}
