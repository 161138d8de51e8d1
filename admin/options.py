"""The options of nsqadmin: NSQ's names and defaults, except that the address defaults to loopback.

See docs/contributing/design/nsq-programs.md#flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from admin.alarms.rules import no_alarm_settings
from admin.users.oidc_options import SCOPE, no_role_mapping, url_problem
from penstock.protocol.names import is_valid_name
from shared.checks import (
    accidental_path,
    at_least,
    between,
    complaints,
    min_duration,
    no_host_port,
    obstructed,
    read_word,
)
from shared.options import option
from shared.tls.options import TlsOptions, https_problems
from shared.values import MILLISECOND, SECOND, Duration

PROGRAM = "nsqadmin"

ROLES = ("nobody", "viewer", "body-viewer", "operator", "admin")  # of users who are in no auth file

_CLUSTER = re.compile(r"[A-Za-z0-9_-]{1,40}")


def no_network(text: str) -> str:
    """Check a network, as an option check; "" stands for all networks."""
    import ipaddress

    try:
        ipaddress.ip_network(text or "0.0.0.0/0", strict=False)
    except ValueError:
        return "expected a network such as 10.0.0.0/8"
    return ""


def no_http_address(text: str) -> str:
    """Check an address of a daemon's HTTP API, as an option check: host and port, maybe behind http:// or https://."""
    scheme, found, rest = text.partition("://")
    return no_host_port(rest if found and scheme in ("http", "https") else text)


def without_scheme(address: str) -> str:
    """Return host:port of such an address."""
    return address.rpartition("://")[2]


def no_base_path(text: str) -> str:
    """Check a base path, as an option check."""
    return "" if text.startswith("/") and "//" not in text and "?" not in text else "expected a path that begins with /"


def no_cluster_name(name: str) -> str:
    """Check a cluster's name, as an option check."""
    return "" if _CLUSTER.fullmatch(name) else "expected 1 to 40 letters, digits, - and _"


def no_clusters(texts: tuple[str, ...]) -> str:
    """Check the option of further clusters, as an option check."""
    for text in texts:
        name, _, addresses = text.partition("=")
        wrong = no_cluster_name(name) or next(filter(None, map(no_http_address, addresses.split(","))), "")
        if wrong:
            return f"expected <name>=<addr>:<port>: {wrong}"
    return ""


def no_networks(texts: tuple[str, ...]) -> str:
    """Check several networks, as an option check."""
    return next(filter(None, map(no_network, texts)), "")


def no_topic_name(name: str) -> str:
    """Check a topic name, as an option check; "" stands for no topic."""
    return "" if not name or is_valid_name(name) else "is not a valid topic name"


def read_role(text: str) -> str:
    """Read an option that is one of the roles, or "". Raises ValueError."""
    return read_word(*ROLES)(text) if text else ""


@dataclass(frozen=True, slots=True)
class AdminOptions(TlsOptions):
    """The options of nsqadmin; each field defines a flag, an environment variable and a line of the help."""

    log_prefix: str = option("[nsqadmin] ", "log message prefix")

    http_address: str = option("127.0.0.1:4171", "<addr>:<port> or unix socket path to listen on for HTTP clients")
    base_path: str = option("/", "URL base path", check=no_base_path)
    dev_static_dir: str = option("", "(development use only)")
    allowed_host: tuple[str, ...] = option(
        (), "DNS name, or .suffix, that the Host header of an HTTP request may have (may be given multiple times)"
    )

    lookupd_http_address: tuple[str, ...] = option(
        (),
        "lookupd HTTP address, or https://<addr>:<port> (may be given multiple times)",
        key="nsqlookupd_http_addresses",
    )
    cluster: tuple[str, ...] = option(
        (),
        "another cluster to show: <name>=<addr>:<port>[,<addr>:<port>] with its nsqlookupd HTTP addresses"
        " (may be given multiple times)",
        check=no_clusters,
    )
    cluster_name: str = option("main", "name of the first cluster, shown if there are several", check=no_cluster_name)
    nsqd_http_address: tuple[str, ...] = option(
        (), "nsqd HTTP address, or https://<addr>:<port> (may be given multiple times)", key="nsqd_http_addresses"
    )
    nsqd_https: bool = option(False, "ask the nsqd that lookupd names by HTTPS only, at the ports that they register")
    http_client_connect_timeout: Duration = option(
        Duration(2 * SECOND), "timeout for HTTP connect", check=min_duration(MILLISECOND)
    )
    http_client_request_timeout: Duration = option(
        Duration(5 * SECOND), "timeout for HTTP request", check=min_duration(MILLISECOND)
    )
    max_upstream_response: int = option(
        32 * 1024 * 1024,
        "maximum size in bytes of a response of nsqd or nsqlookupd; all responses together may use 16 times as much memory",
        check=at_least(64 * 1024),
    )
    http_client_tls_insecure_skip_verify: bool = option(
        False, "configure the HTTP client to skip verification of TLS certificates"
    )
    http_client_tls_root_ca_file: str = option("", "path to CA file for the HTTP client")
    http_client_tls_cert: str = option("", "path to certificate file for the HTTP client")
    http_client_tls_key: str = option("", "path to key file for the HTTP client")
    http_client_tls_security_level: int = option(
        2,
        "OpenSSL security level for certificates (0 to 2): 1 accepts RSA keys of 1024 bits, 0 also accepts SHA-1 signatures",
        check=between(0, 2),
    )

    graphite_url: str = option("", "graphite HTTP address, for /api/graphite")
    proxy_graphite: bool = option(False, "proxy HTTP requests to graphite at /render")
    statsd_counter_format: str = option("stats.counters.%s.count", "the counter stats key formatting of statsd")
    statsd_gauge_format: str = option("stats.gauges.%s", "the gauge stats key formatting of statsd")
    statsd_prefix: str = option("nsq.%s", "prefix used for keys sent to statsd (%s for host replacement)")
    statsd_interval: Duration = option(
        Duration(60 * SECOND), "time interval nsqd is configured to push to statsd", check=min_duration(SECOND)
    )

    notification_http_endpoint: str = option("", "HTTP endpoint (fully qualified) to which admin actions are POSTed")
    allow_config_from_cidr: str = option("127.0.0.1/8", 'network from which /config may be read and changed ("": any)')
    acl_http_header: str = option("X-Forwarded-User", "HTTP header to check for authenticated admin users")
    admin_user: tuple[str, ...] = option(
        (), "admin user; if set, only admin users may make changes (may be given multiple times)", key="admin_users"
    )
    acl_trusted_cidr: tuple[str, ...] = option(
        (),
        "network of trusted proxies, whose -acl-http-header and X-Forwarded-For are used"
        " (may be given multiple times; default: loopback, or none with -auth-file or -oidc-issuer)",
        check=no_networks,
    )
    auth_token_file: str = option(
        "", "path to a file with the token that nsqadmin shows to nsqd and nsqlookupd; it needs the role admin there"
    )
    auth_token_for: tuple[str, ...] = option(
        (),
        "<addr>:<port> of an nsqd to which the token is shown, with * for any characters (may be given multiple times;"
        " default: only to the addresses of -lookupd-http-address and -nsqd-http-address, and to none over HTTPS with"
        " -http-client-tls-cert)",
    )
    auth_file: str = option(
        "",
        "path to a file that says who may do what, the same as that of nsqd (penstock users); if set, users have to log in",
    )
    oidc_issuer: str = option(
        "", "URL of the OpenID Connect provider where users may log in; https, or http on loopback"
    )
    oidc_client_id: str = option("", "ID under which nsqadmin is registered at the OIDC provider")
    oidc_client_secret_file: str = option(
        "", "path to a file with the client secret for the OIDC provider (default: none, a public client with PKCE)"
    )
    oidc_scope: str = option("openid profile", "scopes to ask the OIDC provider for, separated by spaces")
    oidc_user_claim: str = option("preferred_username", "claim of the ID token with the name of the user")
    oidc_claim: str = option(
        "groups",
        "claim of the ID token whose values -oidc-role maps to roles; dots lead into objects: realm_access.roles",
    )
    oidc_role: tuple[str, ...] = option(
        (),
        "VALUE=ROLE: users whose -oidc-claim has this value have this role of the auth file, or this built-in one"
        " (may be given multiple times)",
        key="oidc_roles",
        check=no_role_mapping,
    )
    oidc_redirect_url: str = option(
        "", "URL of /login/oidc/callback as browsers reach it (default: by the Host header of the request)"
    )
    oidc_root_ca_file: str = option(
        "", "path to CA file for the OIDC provider (default: the authorities of the system)"
    )
    anonymous_role: str = option(
        "",
        "role of users who have not logged in: nobody, viewer, body-viewer, operator or admin"
        " (default: nobody with -auth-file or -oidc-issuer, otherwise admin)",
        read=read_role,
    )
    session_lifetime: Duration = option(
        Duration(12 * 3600 * SECOND), "duration of a login session", check=min_duration(60 * SECOND)
    )
    show_bodies: bool = option(True, "show message bodies to users whose role allows it")
    lake: str = option("", "directory or URL of the lake, written by penstock archive, whose history is shown")
    state_dir: str = option(
        "", "directory in which nodes, alarms and thresholds are remembered over a restart (default: in memory only)"
    )
    alarm: tuple[str, ...] = option(
        (),
        "threshold of an alarm: <rule>.<name>=<value>, or <rule>=off (may be given multiple times; nsqadmin's page Alarm"
        " rules lists them)",
        check=no_alarm_settings,
    )
    alarm_interval: Duration = option(
        Duration(15 * SECOND), "interval between two checks of all alarms", check=min_duration(SECOND)
    )
    alarm_webhook: tuple[str, ...] = option(
        (), "URL to which alarms are POSTed when they are raised and when they end (may be given multiple times)"
    )
    alarm_webhook_format: str = option(
        "json",
        "body of the POST to -alarm-webhook: json (text and alarms) or slack (text only, for Slack and Mattermost)",
        read=read_word("json", "slack"),
    )
    docs_url: str = option(
        "", "URL below which Penstock's docs are served, to which alarms link (default: pages of nsqadmin)"
    )
    audit_file: str = option(
        "", "path to the audit log, one line of JSON per action (default: the last 1,000 actions, in memory only)"
    )
    audit_topic: str = option("", "topic to which audit records are published", check=no_topic_name)

    def problems(self) -> list[str]:
        """Return the errors that no check of a single option can see."""
        wrong = [*self.tls_problems(), *https_problems(self), *_oidc_problems(self)]
        if self.nsqd_https and self.nsqd_http_address:
            wrong.append("--nsqd-https is about the nsqd that lookupd names: write https:// in --nsqd-http-address")
        if self.lookupd_http_address and self.nsqd_http_address:
            wrong.append("use --nsqd-http-address or --lookupd-http-address not both")
        if not (self.lookupd_http_address or self.nsqd_http_address):
            wrong.append("--nsqd-http-address or --lookupd-http-address required")
        if bool(self.http_client_tls_cert) != bool(self.http_client_tls_key):
            wrong.append("--http-client-tls-key and --http-client-tls-cert must be specified together")
        wrong += complaints("lookupd-http-address", self.lookupd_http_address, no_http_address)
        wrong += complaints("nsqd-http-address", self.nsqd_http_address, no_http_address)
        # Here and not at the option, because the original exits with 1 for it.
        if no_network(network := self.allow_config_from_cidr):
            wrong.append(f"failed to parse --allow-config-from-cidr ({network}) - invalid CIDR address")
        wrong += [
            f"--alarm-webhook {url!r}: expected a URL that begins with http:// or https://"
            for url in self.alarm_webhook
            if not url.startswith(("http://", "https://"))
        ]
        if self.docs_url and not self.docs_url.startswith(("http://", "https://", "/")):
            wrong.append(f"--docs-url {self.docs_url!r}: expected a URL that begins with http://, https:// or /")
        if self.proxy_graphite and not self.graphite_url.startswith(("http://", "https://")):
            wrong.append(f"--graphite-url {self.graphite_url!r}: --proxy-graphite wants http:// or https://")
        return wrong

    def obstacles(self) -> list[str]:
        """Return a line for each address that cannot be bound."""
        return [*complaints("http-address", [self.http_address], obstructed), *self.tls_obstacles()]

    def oddities(self) -> list[str]:
        """Return a line for each address, policy or token that is probably a mistake."""
        odd = [*complaints("http-address", [self.http_address], accidental_path), *self.tls_oddities()]
        if self.auth_token_for and self.auth_token_file:
            odd.append(
                "--auth-token-for: each of these nodes can use the token elsewhere; --http-client-tls-cert with a"
                " [[certificate]] in the auth file needs no token"
            )
        return odd


def _oidc_problems(options: AdminOptions) -> list[str]:
    """Return the errors of the options together."""
    if not options.oidc_issuer:
        names = ("client_id", "client_secret_file", "role", "redirect_url", "root_ca_file")
        given = [name for name in names if getattr(options, f"oidc_{name}")]
        return [f"--oidc-{name.replace('_', '-')} has no effect without --oidc-issuer" for name in given]
    issuer = url_problem(options.oidc_issuer) or ("must have no query" if "?" in options.oidc_issuer else "")
    redirect = url_problem(options.oidc_redirect_url) if options.oidc_redirect_url else ""
    problems = {
        f"--oidc-issuer {issuer}": issuer,
        f"--oidc-redirect-url {redirect}": redirect,
        "--oidc-client-id required with --oidc-issuer: the provider issues it to nsqadmin": not options.oidc_client_id,
        "--oidc-role required with --oidc-issuer, such as --oidc-role ops=operator": not options.oidc_role,
        f"--oidc-scope must contain {SCOPE}": SCOPE not in options.oidc_scope.split(),
    }
    return [problem for problem, applies in problems.items() if applies]
