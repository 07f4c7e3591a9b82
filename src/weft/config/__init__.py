"""The configuration: frozen sections of plain values, merged from flags, environment, a YAML file and defaults.

Precedence: flag > `WEFT_*` environment > YAML file > default. Keys are flat; each belongs to one section, and a
component gets its section, never the whole configuration. An unknown key, a wrong type or a value out of range is an
error; all errors are reported at once, each with its location, the accepted values and the nearest known key. To add a
key, add a field to a section (`crawl`, `pods`, `service`). Each product has its own sections: a key of the service is
not a flag of `weft crawl`. The spellings of a setting: see `weft.names`.
"""

from weft.config.cluster import ClusterSection
from weft.config.crawl import (
    ExtractSection,
    FetchSection,
    LimitsSection,
    LoginSection,
    LoginsSection,
    LogSection,
    PolitenessSection,
    RunSection,
    ScopeSection,
    StoreSection,
)
from weft.config.keys import Key, accepted, json_schema, keys, own_names
from weft.config.loading import Loaded, load, load_service
from weft.config.masking import masked
from weft.config.pods import PodSpec, PodsSection, RedisSection, numbers
from weft.config.proxies import ProxySection
from weft.config.service import JobsSection, ServerSection, ServiceConfig, ServicesSection
from weft.config.sources import DEBUG_PODS, checks_pod_assignment
from weft.config.tree import (
    COMPUTED,
    CRAWL,
    IN_FILES,
    NOT_KEPT,
    PATTERNS,
    SERVICE,
    Config,
    Product,
    product_named,
    was_given,
)
from weft.config.values import location, rules_file, split

__all__ = [
    "COMPUTED",
    "CRAWL",
    "DEBUG_PODS",
    "IN_FILES",
    "NOT_KEPT",
    "PATTERNS",
    "SERVICE",
    "ClusterSection",
    "Config",
    "ExtractSection",
    "FetchSection",
    "JobsSection",
    "Key",
    "LimitsSection",
    "Loaded",
    "LogSection",
    "LoginSection",
    "LoginsSection",
    "PodSpec",
    "PodsSection",
    "PolitenessSection",
    "Product",
    "ProxySection",
    "RedisSection",
    "RunSection",
    "ScopeSection",
    "ServerSection",
    "ServiceConfig",
    "ServicesSection",
    "StoreSection",
    "accepted",
    "checks_pod_assignment",
    "json_schema",
    "keys",
    "load",
    "load_service",
    "location",
    "masked",
    "numbers",
    "own_names",
    "product_named",
    "rules_file",
    "split",
    "was_given",
]
