"""The collaborators of the pages of one cluster."""

from __future__ import annotations

from dataclasses import dataclass

from admin.nodes.places import Settings
from admin.nodes.queries import Queries
from admin.options import AdminOptions
from admin.output.layout import PageRenderer
from admin.users.access import Access
from admin.users.audit import Audit


@dataclass(frozen=True, slots=True)
class Site:
    """The collaborators of every page of a cluster. Handlers take it, and in addition what they alone need."""

    options: AdminOptions  # base_path is that of the cluster
    settings: Settings
    queries: Queries
    renderer: PageRenderer
    access: Access
    audit: Audit
