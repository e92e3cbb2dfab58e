//! Encodes objects as Protocol Buffers, which CoreDNS asks the API server for: from their JSON, with the
//! field numbers of Kubernetes' `generated.proto`. Only the fields that `objects.rs` writes are known.

use serde_json::Value;

/// The creation time of everything, in both encodings.
pub const CREATED: &str = "2026-01-01T00:00:00Z";
const CREATED_SECONDS: u64 = 1_767_225_600;

/// The fields of a message: each one's name in JSON, its number and type.
pub type Message = &'static [(&'static str, u64, Field)];

/// The type of a field; a list repeats it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Text,
    Number,
    Map,
    /// The creation time of everything.
    Time,
    /// Raw JSON, in its own message.
    Json,
    /// A port by its number or name.
    Port,
    Of(Message),
}

use Field::{Json, Map, Number, Of, Port, Text, Time};

const META: Message = &[
    ("name", 1, Text),
    ("namespace", 3, Text),
    ("uid", 5, Text),
    ("resourceVersion", 6, Text),
    ("generation", 7, Number),
    ("creationTimestamp", 8, Time),
    ("labels", 11, Map),
    ("annotations", 12, Map),
    ("ownerReferences", 13, Of(OWNER)),
    ("managedFields", 17, Of(MANAGED)),
];

const OWNER: Message = &[
    ("kind", 1, Text),
    ("name", 3, Text),
    ("uid", 4, Text),
    ("apiVersion", 5, Text),
    ("controller", 6, Number),
    ("blockOwnerDeletion", 7, Number),
];

const MANAGED: Message = &[
    ("manager", 1, Text),
    ("operation", 2, Text),
    ("apiVersion", 3, Text),
    ("time", 4, Time),
    ("fieldsType", 6, Text),
    ("fieldsV1", 7, Json),
];

pub const NAMESPACE: Message = &[
    ("metadata", 1, Of(META)),
    ("status", 3, Of(&[("phase", 1, Text)])),
];

pub const SERVICE: Message = &[("metadata", 1, Of(META)), ("spec", 2, Of(SERVICE_SPEC))];

const SERVICE_SPEC: Message = &[
    ("ports", 1, Of(SERVICE_PORT)),
    ("selector", 2, Map),
    ("clusterIP", 3, Text),
    ("type", 4, Text),
    ("sessionAffinity", 7, Text),
    ("ipFamilyPolicy", 17, Text),
    ("clusterIPs", 18, Text),
    ("ipFamilies", 19, Text),
    ("internalTrafficPolicy", 22, Text),
];

const SERVICE_PORT: Message = &[
    ("name", 1, Text),
    ("protocol", 2, Text),
    ("port", 3, Number),
    ("targetPort", 4, Port),
];

pub const SLICE: Message = &[
    ("metadata", 1, Of(META)),
    ("endpoints", 2, Of(ENDPOINT)),
    ("ports", 3, Of(ENDPOINT_PORT)),
    ("addressType", 4, Text),
];

const ENDPOINT: Message = &[
    ("addresses", 1, Text),
    ("conditions", 2, Of(CONDITIONS)),
    ("targetRef", 4, Of(REFERENCE)),
    ("nodeName", 6, Text),
    ("zone", 7, Text),
];

const CONDITIONS: Message = &[
    ("ready", 1, Number),
    ("serving", 2, Number),
    ("terminating", 3, Number),
];

const ENDPOINT_PORT: Message = &[("name", 1, Text), ("protocol", 2, Text), ("port", 3, Number)];

const REFERENCE: Message = &[
    ("kind", 1, Text),
    ("namespace", 2, Text),
    ("name", 3, Text),
    ("uid", 4, Text),
];

/// Encodes an object as a message.
///
/// # Panics
///
/// At an unknown field: it would be missing in one of the two encodings.
#[expect(clippy::panic, reason = "the objects are this program's own")]
pub fn encode(object: &Value, message: Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        // Top-level objects have these in their envelope.
        if object.get("metadata").is_some() && ["kind", "apiVersion"].contains(&&**name) {
            continue;
        }
        let (_, number, field) = message
            .iter()
            .find(|(known, _, _)| known == name)
            .unwrap_or_else(|| panic!("{name} has no number"));
        match value {
            Value::Array(values) => values
                .iter()
                .for_each(|value| put(&mut out, *number, value, *field)),
            value => put(&mut out, *number, value, *field),
        }
    }
    out
}

fn put(out: &mut Vec<u8>, number: u64, value: &Value, field: Field) {
    let text = || value.as_str().unwrap_or_default();
    match field {
        Text => octets(out, number, text().as_bytes()),
        Number => integer(
            out,
            number,
            value.as_u64().unwrap_or(u64::from(value == &Value::Bool(true))),
        ),
        Time => {
            let mut time = Vec::new();
            integer(&mut time, 1, CREATED_SECONDS);
            octets(out, number, &time);
        }
        Json => {
            let mut raw = Vec::new();
            octets(&mut raw, 1, value.to_string().as_bytes());
            octets(out, number, &raw);
        }
        Port => {
            let mut port = Vec::new();
            integer(&mut port, 1, 1);
            octets(&mut port, 3, text().as_bytes());
            octets(out, number, &port);
        }
        Map => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let mut entry = Vec::new();
                octets(&mut entry, 1, key.as_bytes());
                octets(&mut entry, 2, value.as_str().unwrap_or_default().as_bytes());
                octets(out, number, &entry);
            }
        }
        Of(message) => octets(out, number, &encode(value, message)),
    }
}

/// Wraps a top-level message in the envelope that names its kind.
pub fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut what = Vec::new();
    octets(&mut what, 1, version.as_bytes());
    octets(&mut what, 2, kind.as_bytes());
    let mut out = b"k8s\0".to_vec();
    octets(&mut out, 1, &what);
    octets(&mut out, 2, message);
    out
}

/// Encodes an event of a watch, preceded by its length.
pub fn event(what: &str, object: &[u8]) -> Vec<u8> {
    let (mut raw, mut event) = (Vec::new(), Vec::new());
    octets(&mut raw, 1, object);
    octets(&mut event, 1, what.as_bytes());
    octets(&mut event, 2, &raw);
    let length = event.len() as u32;
    [&length.to_be_bytes()[..], &event].concat()
}

/// Appends a field with bytes, or a message.
pub fn octets(out: &mut Vec<u8>, number: u64, octets: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, octets.len() as u64);
    out.extend_from_slice(octets);
}

fn integer(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_have_their_numbers() {
        let port = json!({"name": "web", "port": 300});
        assert_eq!(encode(&port, ENDPOINT_PORT), b"\x0a\x03web\x18\xac\x02");
        let both = json!({"addresses": ["a", "b"], "conditions": {"ready": true}});
        assert_eq!(encode(&both, ENDPOINT), b"\x0a\x01a\x0a\x01b\x12\x02\x08\x01");
        assert_eq!(
            envelope("v1", "X", b"m"),
            b"k8s\0\x0a\x07\x0a\x02v1\x12\x01X\x12\x01m"
        );
        assert_eq!(event("A", b"o"), b"\0\0\0\x08\x0a\x01A\x12\x03\x0a\x01o");
    }
}
