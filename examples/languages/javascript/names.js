// A filter with a handful of names: answers some, blocks others.
//
//     config {
//         host "hello.example" "192.0.2.7"   // A queries for this name get this address
//         block "ads.example"                // this name and all below it do not exist
//     }

import host from "dnsweir:filter/host@0.1.0";

const TYPE_A = 1;
const CLASS_IN = 1;
const NXDOMAIN = 3;
const TTL = 300;

/** Keys are names in wire format, as strings with a character per byte. */
const hosts = new Map();
const blocked = new Set();

export const configure = {
    configure(setup) {
        const suffixes = [];
        const mistakes = [];
        setup.config.forEach((node, index) => {
            const texts = node.arguments.map((value) => (value.tag === "text" ? value.val : ""));
            const mistake = check(node.name, texts);
            if (mistake) {
                mistakes.push({ node: index, ...mistake });
                return;
            }
            suffixes.push(texts[0]);
            if (node.name === "block") {
                blocked.add(wire(texts[0]));
            } else {
                hosts.set(wire(texts[0]), new Uint8Array(texts[1].split(".").map(Number)));
            }
        });
        if (mistakes.length > 0) {
            throw mistakes;
        }
        host.log("info", `the JavaScript filter is ready: ${hosts.size} hosts, ${blocked.size} blocked`);
        const phases = { queries: true, responses: false, events: false };
        const lists = { qtypes: [], suffixes, tables: [], details: [], sources: [], outcomes: [] };
        return { ...lists, ...phases, messages: false, asks: false };
    },
};

export const queries = {
    onQueries(now, batch, octets) {
        const verdicts = [];
        batch.forEach((query, index) => {
            const name = octets.slice(query.nameStart, query.nameStart + query.nameLength);
            const decision = decide(name, query.qtype);
            if (decision) {
                verdicts.push({ query: index, remember: 0, decision, edit: null, skipResponse: false, delay: 0, route: null });
            }
        });
        return verdicts;
    },
};

/** The decision about a query; undefined: it passes. */
function decide(name, qtype) {
    const text = String.fromCharCode.apply(null, name);
    const address = hosts.get(text);
    if (address && qtype === TYPE_A) {
        const record = { name, rtype: TYPE_A, class: CLASS_IN, ttl: TTL, rdata: address };
        const val = { rcode: 0, authoritative: false, answers: [record], authority: [], additional: [], error: null };
        return { tag: "answer", val };
    }
    for (let label = 0; name[label] > 0; label += 1 + name[label]) {
        if (blocked.has(text.slice(label))) {
            host.count("blocked", [], 1);
            return { tag: "refuse", val: { rcode: NXDOMAIN, error: null } };
        }
    }
    return null;
}

/** What is wrong with a node, and where. */
function check(setting, texts) {
    const node = { tag: "node" };
    const argument = (index) => (index < texts.length ? { tag: "argument", val: index } : node);
    if (setting !== "host" && setting !== "block") {
        return { place: node, message: `there is no \`${setting}\` here`, help: "valid here: `host`, `block`" };
    }
    if (texts.length < 1 || !wire(texts[0])) {
        return { place: argument(0), message: "this needs a domain name", help: 'write one like "ads.example"' };
    }
    if (setting === "host" && (texts.length < 2 || !isAddress(texts[1]))) {
        return { place: argument(1), message: "this needs an IPv4 address", help: 'write it like "192.0.2.7"' };
    }
    return null;
}

/** The wire format, lowercase, of a name in presentation format without escapes; undefined if it is invalid. */
function wire(name) {
    const labels = name.toLowerCase().replace(/\.$/, "").split(".");
    if (!labels.every((label) => /^[\x21-\x7e]{1,63}$/.test(label))) {
        return null;
    }
    const wire = labels.map((label) => String.fromCharCode(label.length) + label).join("") + "\0";
    return wire.length <= 255 ? wire : null;
}

function isAddress(text) {
    const parts = text.split(".");
    return parts.length === 4 && parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) < 256);
}
