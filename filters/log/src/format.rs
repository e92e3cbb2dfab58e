//! The format of a line, parsed once.

use dnsweir_filter::{Event, FromValue, Identity, Line, Pod, Source, Transport, Value, Word, print_with};

use crate::line::{self, word};

/// CoreDNS's Common Log Format.
const COMMON: &str = "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" \
                      {rcode} {>rflags} {rsize} {duration}";
/// The same with the opcode.
const COMBINED: &str = "{remote}:{port} - {>id} {>opcode} \"{type} {class} {name} {proto} {size} {>do} \
                        {>bufsize}\" {rcode} {>rflags} {rsize} {duration}";

/// A format of log lines.
#[derive(Debug, PartialEq)]
pub enum Format {
    /// CoreDNS's Common Log Format, optionally with the opcode: the same as [`COMMON`] and [`COMBINED`], but
    /// in one go, because choosing the next piece at run time takes twice as long.
    Common {
        /// Whether to include the opcode.
        opcode: bool,
    },
    /// Text in pieces.
    Text(Vec<Piece>),
    /// As a JSON object.
    Json,
}

/// A piece of a text format.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Literal text.
    Literal(String),
    /// The same for short text.
    Word(Word),
    /// A field of the event.
    Field(Field),
}

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident = $text:literal,)*) => {
        /// The field that a placeholder stands for.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum Field {
            $($(#[$doc])* $field,)*
        }

        impl Field {
            fn parse(text: &str) -> Option<Field> {
                match text {
                    $($text => Some(Field::$field),)*
                    _ => None,
                }
            }

            /// Every placeholder, for help.
            const ALL: &str = concat!($("{", $text, "} "),*);
        }
    };
}

fields! {
    /// The client's address, in brackets if it is IPv6.
    Remote = "remote",
    /// The client's port.
    Port = "port",
    /// The time of the query.
    Time = "time",
    /// The type asked for.
    Type = "type",
    /// The class asked for.
    Class = "class",
    /// The name asked for.
    Name = "name",
    /// `udp` or `tcp`.
    Proto = "proto",
    /// The size of the query in bytes.
    Size = "size",
    /// The rcode.
    Rcode = "rcode",
    /// The size of the response in bytes.
    ResponseSize = "rsize",
    /// The time from query to response in seconds.
    Duration = "duration",
    /// Where the answer came from.
    Source = "source",
    /// The message ID.
    Id = ">id",
    /// The query's opcode.
    Opcode = ">opcode",
    /// Whether the client wants DNSSEC records.
    DnssecOk = ">do",
    /// The largest response that the client accepts, in bytes.
    BufferSize = ">bufsize",
    /// The flags of the response.
    Flags = ">rflags",
    /// The client: `shop/web-1`, `host` or `unknown`.
    Identity = "identity",
    /// The namespace of the client's pod.
    Namespace = "namespace",
    /// The name of the client's pod.
    Pod = "pod",
}

impl Format {
    /// The default.
    pub fn common() -> Format {
        Format::Common { opcode: false }
    }

    fn parse(text: &str) -> Result<Format, String> {
        if text.contains(char::is_control) {
            return Err("control characters are not allowed; the end of the line is added".to_owned());
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            if !literal.is_empty() {
                pieces.push(Piece::literal(literal));
            }
            let (placeholder, after) = after.split_once('}').ok_or("a { is not closed by }")?;
            let field = Field::parse(placeholder).ok_or_else(|| {
                format!(
                    "there is no {{{placeholder}}}; there are {}",
                    Field::ALL.trim_end()
                )
            })?;
            pieces.push(Piece::Field(field));
            rest = after;
        }
        if pieces.is_empty() {
            return Err(
                "\"common\", \"combined\", \"json\", or text with placeholders such as {name}".to_owned(),
            );
        }
        if !rest.is_empty() {
            pieces.push(Piece::literal(rest));
        }
        Ok(Format::Text(pieces))
    }

    /// Whether the format includes the client's identity.
    pub fn has_identity(&self) -> bool {
        let is_identity = |piece: &Piece| {
            matches!(
                piece,
                Piece::Field(Field::Identity | Field::Namespace | Field::Pod)
            )
        };
        match self {
            Format::Common { .. } => false,
            Format::Json => true,
            Format::Text(pieces) => pieces.iter().any(is_identity),
        }
    }

    /// Prints the line.
    pub fn print(&self, event: &Event<'_>) {
        match self {
            Format::Common { opcode: false } => print_with(|line| common(event, false, line)),
            Format::Common { opcode: true } => print_with(|line| common(event, true, line)),
            Format::Json => print_with(|line| json(event, line)),
            Format::Text(pieces) => print_with(|line| {
                for piece in pieces {
                    match piece {
                        Piece::Literal(text) => line.text(text),
                        Piece::Word(word) => line.word(*word),
                        Piece::Field(field) => field.write(event, line),
                    }
                }
            }),
        }
    }
}

impl Piece {
    fn literal(text: &str) -> Piece {
        Word::new(text).map_or_else(|| Piece::Literal(text.to_owned()), Piece::Word)
    }
}

impl FromValue for Format {
    const EXPECTED: &'static str = "a format";

    fn from_value(value: Value<'_>) -> Result<Format, String> {
        match value {
            Value::Text("json") => Ok(Format::Json),
            Value::Text("common" | COMMON) => Ok(Format::Common { opcode: false }),
            Value::Text("combined" | COMBINED) => Ok(Format::Common { opcode: true }),
            Value::Text(text) => Format::parse(text),
            _ => Format::parse(""),
        }
    }
}

impl Field {
    // Inlined into the loop over the pieces, or into the code for a single field.
    #[inline(always)]
    fn write(self, event: &Event<'_>, line: &mut Line<'_>) {
        let query = event.query();
        match self {
            Field::Remote => line::address(query.client(), ["[", "]"], line),
            Field::Port => line.number(query.client_port().into()),
            Field::Time => line::time(query.time(), line),
            Field::Type => line::code(
                query.qtype().word(),
                const { word("TYPE") },
                query.qtype().0,
                line,
            ),
            Field::Class => line::code(
                query.class().word(),
                const { word("CLASS") },
                query.class().0,
                line,
            ),
            Field::Name => line.name(query.name()),
            Field::Proto => line.word(proto(query.transport())),
            Field::Size => line.number(event.query_size().into()),
            Field::Rcode if event.dropped() => line.cut([b'-'], 1),
            Field::Rcode => line::code(event.rcode().word(), const { word("") }, event.rcode().0, line),
            Field::ResponseSize => line.number(event.response_size()),
            Field::Duration => {
                line::seconds(event.duration(), line);
                line.cut([b's'], 1);
            }
            Field::Source => line.word(source(event.source())),
            Field::Id => line.number(event.id().into()),
            Field::Opcode => line.number(query.opcode().into()),
            Field::DnssecOk => line.word(if query.dnssec_ok() {
                const { word("true") }
            } else {
                const { word("false") }
            }),
            Field::BufferSize => line.number(buffer_size(event).into()),
            Field::Flags => {
                if event.dropped() {
                    line.cut([b'-'], 1);
                } else {
                    line::flags(event.response_header(), const { word(",") }, line);
                }
            }
            Field::Identity => match query.identity() {
                Identity::Pod(pod) => {
                    line::plain(pod.namespace, line);
                    line.cut([b'/'], 1);
                    line::plain(pod.name, line);
                }
                Identity::Host => line.word(const { word("host") }),
                Identity::Unknown => line.word(const { word("unknown") }),
            },
            Field::Namespace => line::plain(pod(event).map_or("-", |pod| pod.namespace), line),
            Field::Pod => line::plain(pod(event).map_or("-", |pod| pod.name), line),
        }
    }
}

/// The client's pod.
fn pod<'a>(event: &Event<'a>) -> Option<Pod<'a>> {
    match event.query().identity() {
        Identity::Pod(pod) => Some(pod),
        Identity::Host | Identity::Unknown => None,
    }
}

/// Over TCP, a response may have 65535 bytes whatever EDNS says (RFC 1035 section 4.2.2).
fn buffer_size(event: &Event<'_>) -> u16 {
    match event.query().transport() {
        // Less than 512 counts as 512 (RFC 6891 section 6.2.3).
        Transport::Udp | Transport::Internal => event.query().udp_size().max(512),
        _ => u16::MAX,
    }
}

fn proto(transport: Transport) -> Word {
    match transport {
        Transport::Udp => const { word("udp") },
        Transport::Tcp => const { word("tcp") },
        Transport::Tls => const { word("tls") },
        Transport::Https => const { word("https") },
        Transport::Quic => const { word("quic") },
        Transport::Internal => const { word("internal") },
        Transport::Other(_) => const { word("other") },
    }
}

fn source(source: Source) -> Word {
    match source {
        Source::Upstream => const { word("upstream") },
        Source::Cache => const { word("cache") },
        Source::Stale => const { word("stale") },
        Source::Filter => const { word("filter") },
        Source::Local => const { word("local") },
        Source::Other(_) => const { word("other") },
    }
}

/// Appends the event in the Common Log Format. Without a loop over the fields: each call inlines to one
/// field's code.
#[inline(always)]
fn common(event: &Event<'_>, opcode: bool, line: &mut Line<'_>) {
    Field::Remote.write(event, line);
    line.cut([b':'], 1);
    Field::Port.write(event, line);
    line.word(const { word(" - ") });
    Field::Id.write(event, line);
    if opcode {
        line.cut([b' '], 1);
        Field::Opcode.write(event, line);
    }
    line.word(const { word(" \"") });
    Field::Type.write(event, line);
    line.cut([b' '], 1);
    Field::Class.write(event, line);
    line.cut([b' '], 1);
    Field::Name.write(event, line);
    line.cut([b' '], 1);
    Field::Proto.write(event, line);
    line.cut([b' '], 1);
    Field::Size.write(event, line);
    line.cut([b' '], 1);
    Field::DnssecOk.write(event, line);
    line.cut([b' '], 1);
    Field::BufferSize.write(event, line);
    line.word(const { word("\" ") });
    Field::Rcode.write(event, line);
    line.cut([b' '], 1);
    Field::Flags.write(event, line);
    line.cut([b' '], 1);
    Field::ResponseSize.write(event, line);
    line.cut([b' '], 1);
    Field::Duration.write(event, line);
}

/// Appends the event as one JSON object (RFC 8259).
fn json(event: &Event<'_>, line: &mut Line<'_>) {
    let query = event.query();
    line.text("{\"time\":\"");
    line::time(query.time(), line);
    line.text("\",\"client\":\"");
    line::address(query.client(), ["", ""], line);
    line.text("\",\"port\":");
    line.number(query.client_port().into());
    line.text(",\"id\":");
    line.number(event.id().into());
    line.text(",\"name\":");
    line::quoted_name(query.name(), line);
    line.text(",\"type\":\"");
    Field::Type.write(event, line);
    line.text("\",\"class\":\"");
    Field::Class.write(event, line);
    line.text("\",\"proto\":\"");
    line.word(proto(query.transport()));
    line.text("\",\"size\":");
    line.number(event.query_size().into());
    line.text(",\"do\":");
    Field::DnssecOk.write(event, line);
    line.text(",\"bufsize\":");
    line.number(buffer_size(event).into());
    line.text(",\"rcode\":");
    if event.dropped() {
        line.text("null");
    } else {
        line.cut([b'"'], 1);
        Field::Rcode.write(event, line);
        line.cut([b'"'], 1);
    }
    line.text(",\"flags\":[");
    if !event.dropped() {
        line.cut([b'"'], 1);
        line::flags(event.response_header(), const { word("\",\"") }, line);
        line.cut([b'"'], 1);
    }
    line.text("],\"rsize\":");
    line.number(event.response_size());
    line.text(",\"duration\":");
    line::seconds(event.duration(), line);
    line.text(",\"source\":\"");
    line.word(source(event.source()));
    if let Some(pod) = pod(event) {
        line.text("\",\"namespace\":\"");
        line::plain(pod.namespace, line);
        line.text("\",\"pod\":\"");
        line::plain(pod.name, line);
    }
    line.text("\"}");
}
