"""A filter with a handful of names: answers some, blocks others.

    config {
        host "hello.example" "192.0.2.7"   // A queries for this name get this address
        block "ads.example"                // this name and all below it do not exist
    }
"""

from wit_world.imports import host
from wit_world.imports.types import (
    Answer, ConfigError, Decision_Answer, Decision_Refuse, Manifest, Place_Argument, Place_Node, Refusal,
    ResourceRecord, Value_Text, Verdict,
)
from componentize_py_types import Err

TYPE_A = 1
CLASS_IN = 1
NXDOMAIN = 3
TTL = 300

hosts = {}
blocked = set()


class Configure:
    def configure(self, setup):
        suffixes, mistakes = [], []
        for index, node in enumerate(setup.config):
            texts = [value.value if isinstance(value, Value_Text) else "" for value in node.arguments]
            place, message, help = check(node.name, texts)
            if message:
                mistakes.append(ConfigError(index, place, message, help))
                continue
            suffixes.append(texts[0])
            if node.name == "block":
                blocked.add(wire(texts[0]))
            else:
                hosts[wire(texts[0])] = address(texts[1])
        if mistakes:
            raise Err(mistakes)
        host.log(host.Level.INFO, f"the Python filter is ready: {len(hosts)} hosts, {len(blocked)} blocked")
        return Manifest(qtypes=[], suffixes=suffixes, queries=True, responses=False, events=False, messages=False,
                        asks=False, tables=[], details=[], sources=[], outcomes=[])


class Queries:
    def on_queries(self, now, batch, octets):
        verdicts = []
        for index, query in enumerate(batch):
            name = octets[query.name_start:query.name_start + query.name_length]
            decision = decide(name, query.qtype)
            if decision:
                verdicts.append(Verdict(index, 0, decision, edit=None, skip_response=False, delay=0, route=None))
        return verdicts


def decide(name, qtype):
    """Returns the decision on a query; None lets it pass."""
    if qtype == TYPE_A and name in hosts:
        record = ResourceRecord(name, TYPE_A, CLASS_IN, TTL, hosts[name])
        return Decision_Answer(Answer(0, False, answers=[record], authority=[], additional=[], error=None))
    suffix = name
    while len(suffix) > 1:
        if suffix in blocked:
            host.count("blocked", [], 1)
            return Decision_Refuse(Refusal(NXDOMAIN, error=None))
        suffix = suffix[1 + suffix[0]:]
    return None


def check(setting, texts):
    """Returns where a node has a mistake, the message, and a correction; the message is empty if it has none."""
    if setting not in ("host", "block"):
        return Place_Node(), f"there is no `{setting}` here", "valid here: `host`, `block`"
    if not texts or not wire(texts[0]):
        place = Place_Argument(0) if texts else Place_Node()
        return place, "this needs a domain name", 'write one like "ads.example"'
    if setting == "host" and (len(texts) < 2 or not address(texts[1])):
        place = Place_Argument(1) if len(texts) > 1 else Place_Node()
        return place, "this needs an IPv4 address", 'write it like "192.0.2.7"'
    return Place_Node(), "", ""


def wire(name):
    """Returns the lowercase wire format of a name without escapes; None if it is invalid."""
    labels = name.lower().removesuffix(".").encode().split(b".")
    if not all(0 < len(label) < 64 for label in labels):
        return None
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return wire if len(wire) <= 255 else None


def address(text):
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and int(part) < 256 for part in parts):
        return None
    return bytes(int(part) for part in parts)
