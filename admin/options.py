"""The options of nsqadmin: NSQ's names and defaults (specs/nsq.md e2); only the address defaults to loopback."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from shared.checks import accidental_path, at_least, complaints, no_host_port, obstructed
from shared.daemon_options import DaemonOptions
from shared.options import option
from shared.values import MILLISECOND, SECOND, Duration


def no_network(text: str) -> str:
    """An option check: what is wrong with it as a network; none at all is all of them."""
    try:
        ipaddress.ip_network(text or "0.0.0.0/0", strict=False)
    except ValueError:
        return "want a network such as 10.0.0.0/8"
    return ""


def no_base_path(text: str) -> str:
    """An option check."""
    return "" if text.startswith("/") and "//" not in text and "?" not in text else "want a path that begins with /"


@dataclass(frozen=True, slots=True)
class AdminOptions(DaemonOptions):
    """Each field is the flag, the environment name and the help."""

    log_prefix: str = option("[nsqadmin] ", "log message prefix")

    http_address: str = option("127.0.0.1:4171", "<addr>:<port> or unix socket path to listen on for HTTP clients")
    base_path: str = option("/", "URL base path", check=no_base_path)
    dev_static_dir: str = option("", "(development use only)")
    allowed_host: tuple[str, ...] = option(
        (), "DNS name, or .suffix, that HTTP requests may address this daemon by (may be given multiple times)"
    )

    lookupd_http_address: tuple[str, ...] = option(
        (), "lookupd HTTP address (may be given multiple times)", key="nsqlookupd_http_addresses"
    )
    nsqd_http_address: tuple[str, ...] = option(
        (), "nsqd HTTP address (may be given multiple times)", key="nsqd_http_addresses"
    )
    http_client_connect_timeout: Duration = option(
        Duration(2 * SECOND), "timeout for HTTP connect", check=at_least(MILLISECOND)
    )
    http_client_request_timeout: Duration = option(
        Duration(5 * SECOND), "timeout for HTTP request", check=at_least(MILLISECOND)
    )
    http_client_tls_insecure_skip_verify: bool = option(
        False, "configure the HTTP client to skip verification of TLS certificates"
    )
    http_client_tls_root_ca_file: str = option("", "path to CA file for the HTTP client")
    http_client_tls_cert: str = option("", "path to certificate file for the HTTP client")
    http_client_tls_key: str = option("", "path to key file for the HTTP client")

    graphite_url: str = option("", "graphite HTTP address, for /api/graphite")
    proxy_graphite: bool = option(False, "proxy HTTP requests to graphite at /render")
    statsd_counter_format: str = option("stats.counters.%s.count", "the counter stats key formatting of statsd")
    statsd_gauge_format: str = option("stats.gauges.%s", "the gauge stats key formatting of statsd")
    statsd_prefix: str = option("nsq.%s", "prefix used for keys sent to statsd (%s for host replacement)")
    statsd_interval: Duration = option(
        Duration(60 * SECOND), "time interval nsqd is configured to push to statsd", check=at_least(SECOND)
    )

    notification_http_endpoint: str = option("", "HTTP endpoint (fully qualified) to which admin actions are POSTed")
    allow_config_from_cidr: str = option(
        "127.0.0.1/8", 'a network from which /config may be asked and changed ("": from everywhere)', check=no_network
    )
    acl_http_header: str = option("X-Forwarded-User", "HTTP header to check for authenticated admin users")
    admin_user: tuple[str, ...] = option(
        (), "admin user (may be given multiple times; then only they may change anything)", key="admin_users"
    )

    def problems(self) -> list[str]:
        """What no check of one option can see."""
        wrong = []
        if self.lookupd_http_address and self.nsqd_http_address:
            wrong.append("use --nsqd-http-address or --lookupd-http-address not both")
        if not (self.lookupd_http_address or self.nsqd_http_address):
            wrong.append("--nsqd-http-address or --lookupd-http-address required")
        if bool(self.http_client_tls_cert) != bool(self.http_client_tls_key):
            wrong.append("--http-client-tls-key and --http-client-tls-cert must be specified together")
        wrong += complaints("lookupd-http-address", self.lookupd_http_address, no_host_port)
        wrong += complaints("nsqd-http-address", self.nsqd_http_address, no_host_port)
        if self.proxy_graphite and not self.graphite_url.startswith(("http://", "https://")):
            wrong.append(f"--graphite-url {self.graphite_url!r}: --proxy-graphite wants http:// or https://")
        return wrong

    def obstacles(self) -> list[str]:
        """Addresses where nothing can be bound."""
        return complaints("http-address", [self.http_address], obstructed)

    def oddities(self) -> list[str]:
        """Addresses that are hardly meant so."""
        return complaints("http-address", [self.http_address], accidental_path)
