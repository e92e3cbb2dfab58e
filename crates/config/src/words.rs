//! The words of the configuration: one row per word, in a table next to the code that uses it.
//!
//! A row generates the field, its decoder and default, the word in the node's [`Shape`], and its entries in
//! the reference, `dnsweir words`, the editors' schema and the fuzzers' dictionary. The errors of the word's
//! *kind* define which values are valid.
//!
//! ```text
//! words! {
//!     /// `prefetch hits=2 percent=10`
//!     #[derive(Debug, …)]
//!     pub struct Prefetch in PREFETCH(0..=0): "prefetch hits=2 percent=10";
//!
//!     /// How often it was asked for.
//!     property "hits" hits: u32 = 2 in whole(1..=1_000_000);
//! }
//! ```
//!
//! The first line gives the struct of the node's fields and its [`Table`], the number of values, and a
//! correct example. A row consists of the meaning, the form, the word, the field, the default, the kind, and
//! the bounds as the reference describes them if the kind cannot. The forms:
//!
//! - `one`: a node with one value. `property`: a property of the node. `value`: the value of the node itself.
//! - `file`: a node with the path of a file or folder; a relative one starts at the configuration's folder.
//! - `list "WORD"(1..=16)`: a node with a number of values within the range.
//! - `switch`: a node whose presence turns something on.
//! - `table`: a node with its own table. If absent, it is `none`, `off`, or has its `defaults`. Both may also be
//!   described: `(none: "…")` and `("…")`. `tables`: such nodes, of which each may be wrong and then reads `None`.
//! - `hand`, or `hands` if it may be repeated: a node whose field is filled in by code next to the table.
//!   `stage`: a repeatable node whose position matters. `values`: the values of the node itself, read by such
//!   code.
//!
//! A default is a value, or in parentheses a description for the reference with a correct value to show:
//! `("all": "shop")`; `else` then gives the field's default if it is not `None`. A `required` value or property
//! has none. A function after `then` reads what is left to read, and checks the fields together. Words without a
//! field go into `by hand { … }`, fields without a word into `besides { … }`.

use std::ops::RangeInclusive;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Shape, Takes, Wrong, block};

/// What may be written in a node, and how to read it.
pub(crate) struct Table<T> {
    /// What the node is checked against.
    pub shape: Shape,
    /// One row per word.
    pub words: &'static [Word],
    /// Reads a node that has been checked, and the nodes in its block.
    pub fields: fn(&mut Decoder, &KdlNode, &[KdlNode]) -> T,
    /// The fields of an empty node.
    pub default: fn() -> T,
}

impl<T> Table<T> {
    /// Checks and reads a node, and reports the mistakes in it.
    pub fn read(&self, decoder: &mut Decoder, node: &KdlNode) -> T {
        decoder.check(node, &self.shape);
        (self.fields)(decoder, node, block(node))
    }
}

impl<T: Default> Table<T> {
    /// A node that takes only values, which `read` reads.
    pub(super) const fn of_values(
        values: RangeInclusive<usize>,
        example: &'static str,
        read: fn(&mut Decoder, &KdlNode, &[KdlNode]) -> T,
    ) -> Table<T> {
        Table {
            shape: Shape::plain(values, example),
            words: &[],
            fields: read,
            default: T::default,
        }
    }
}

impl Table<()> {
    /// A node that takes only values, which other code reads.
    pub const fn plain(values: RangeInclusive<usize>, example: &'static str) -> Table<()> {
        Table::of_values(values, example, |_, _, _| ())
    }
}

/// A row of a table.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub name: &'static str,
    pub form: Form,
    /// A paragraph in Markdown.
    pub meaning: &'static str,
    pub default: Preset,
    /// Checks a value. `None` if other code does.
    pub kind: Option<Check>,
    /// Bounds that the kind cannot describe.
    pub bounds: &'static str,
    /// The shape of the node, or of the node that has these values; empty for a property.
    pub shape: &'static Shape,
    /// The table of the node, if it has one.
    pub words: &'static [Word],
}

/// Returns what is wrong with a value, if anything.
pub(crate) type Check = fn(&KdlValue) -> Result<(), Wrong>;

/// The form in which a word is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The values of the node itself.
    Values,
    Property,
    Node,
    /// A node whose presence turns something on.
    Switch,
    /// A node that may be written more than once.
    Repeated,
    /// A repeatable node whose position matters, with its own rules.
    Stage,
}

/// The default of a word.
#[derive(Clone, Copy)]
pub(crate) enum Preset {
    /// Spelled as in the configuration, but without the `#` of `#true`.
    Value(&'static str),
    /// Described as in the reference.
    Text(&'static str),
}

impl Word {
    /// The values that its kind takes.
    pub(super) fn takes(&self) -> Takes {
        // No kind accepts `#null`, so this error describes the kind.
        let refused = self.kind.and_then(|kind| kind(&KdlValue::Null).err());
        refused.map_or(Takes::Text, |wrong| wrong.takes)
    }

    /// Whether a list of `words` includes it. The values of a node without nested nodes are listed with the
    /// node.
    pub(super) fn is_listed(&self, words: &[Word]) -> bool {
        self.form != Form::Values || words.iter().any(Word::is_node)
    }

    /// Whether it is written in the block of its node.
    pub(super) const fn is_node(&self) -> bool {
        !matches!(self.form, Form::Values | Form::Property)
    }

    const fn is(&self, which: Which) -> bool {
        match which {
            Which::Properties => matches!(self.form, Form::Property),
            Which::Nodes => self.is_node(),
            Which::Repeated => matches!(self.form, Form::Repeated | Form::Stage),
        }
    }
}

/// A subset of a table's words.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    Properties,
    Nodes,
    Repeated,
}

/// Counts the `words` in a subset.
pub(crate) const fn count(words: &[Word], which: Which) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < words.len() {
        found += words[at].is(which) as usize;
        at += 1;
    }
    found
}

/// The names of the `words` in a subset.
pub(crate) const fn names<const N: usize>(words: &[Word], which: Which) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut at, mut found) = (0, 0);
    while at < words.len() {
        if words[at].is(which) {
            names[found] = words[at].name;
            found += 1;
        }
        at += 1;
    }
    names
}

/// See the top of this file.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis struct $T:ident in $($rest:tt)*) => {
        $crate::words::words! { @struct [$(#[$meta])* $vis] $T in $($rest)* }
        $crate::words::words! { $T in $($rest)* }
    };
    (@struct [$($head:tt)*] $T:ident in $TABLE:ident($values:expr): $example:expr $(, then $then:path)?;
        $(
            $(#[doc = $meaning:literal])+
            $form:ident $word:literal $(($count:expr))? $field:ident: $F:ty = $default:tt $(in $kind:expr)? $(, $bounds:literal)?;
        )*
        $(by hand { $($hand:tt)* })?
        $(besides { $( $(#[doc = $note:literal])+ $other:ident: $O:ty; )* })?
    ) => {
        $($head)* struct $T {
            $( $(#[doc = $meaning])+ pub $field: $F, )*
            $($( $(#[doc = $note])+ pub $other: $O, )*)?
        }
        impl Default for $T {
            fn default() -> $T {
                ($TABLE.default)()
            }
        }
    };
    ($T:tt in $TABLE:ident($values:expr): $example:expr $(, then $then:path)?;
        $(
            $(#[doc = $meaning:literal])+
            $form:ident $word:literal $(($count:expr))? $field:ident: $F:ty = $default:tt $(in $kind:expr)? $(, $bounds:literal)?;
        )*
        $(by hand {
            $(
                $(#[doc = $by_hand:literal])+
                $hand_form:ident $hand_word:literal $(($hand_count:expr))? = $hand_default:tt $(in $hand_kind:expr)? $(, $hand_bounds:literal)?;
            )*
        })?
        $(besides { $( $(#[doc = $note:literal])+ $other:ident: $O:ty; )* })?
    ) => {
        pub(crate) const $TABLE: $crate::words::Table<$T> = {
            #[allow(unused_imports, reason = "what each is for, not each table has")]
            use $crate::{
                decode::{Decoder, Shape, child, named_nodes},
                words::{Form, Preset, Table, Which, Word, count, names, words},
            };
            #[allow(dead_code, reason = "some nodes have no row for their values")]
            const VALUES: Shape = Shape::plain($values, $example);
            const WORDS: &[Word] = &[
                $( words!(@word $form $word [$($count)?] $default [$($kind)?] [$($bounds)?] [$($meaning)+]), )*
                $($( words!(@word $hand_form $hand_word [$($hand_count)?] $hand_default [$($hand_kind)?] [$($hand_bounds)?] [$($by_hand)+]), )*)?
            ];
            const PROPERTIES: [&str; count(WORDS, Which::Properties)] = names(WORDS, Which::Properties);
            const CHILDREN: [&str; count(WORDS, Which::Nodes)] = names(WORDS, Which::Nodes);
            const REPEATED: [&str; count(WORDS, Which::Repeated)] = names(WORDS, Which::Repeated);
            const SHAPE: Shape = Shape {
                example: $example,
                arguments: $values,
                properties: &PROPERTIES,
                children: &CHILDREN,
                repeated: &REPEATED,
            };
            #[allow(unused_variables, reason = "words may all be properties, or read by hand")]
            fn fields(decoder: &mut Decoder, node: &kdl::KdlNode, nodes: &[kdl::KdlNode]) -> $T {
                let read = words!(@new $T {
                    // The type annotation makes the compiler point at this field in case of an error.
                    $( $field: {
                        let value: $F = words!(@read $form [decoder node nodes] $word [$($count)?] $default [$($kind)?]);
                        value
                    }, )*
                    $($( $other: Default::default(), )*)?
                });
                $(
                    let mut read = read;
                    $then(decoder, node, &mut read);
                )?
                read
            }
            fn default() -> $T {
                words!(@new $T {
                    $( $field: words!(@default $default [$($kind)?]), )*
                    $($( $other: Default::default(), )*)?
                })
            }
            Table { shape: SHAPE, words: WORDS, fields, default }
        };
    };
    (@new () {}) => { () };
    (@new $T:ident { $($fields:tt)* }) => { $T { $($fields)* } };

    // Reading a field.
    (@read switch [$m:ident $n:ident $b:ident] $word:literal [] off []) => { $m.switch($b, $word) };
    (@read list [$m:ident $n:ident $b:ident] $word:literal [$count:expr] $default:tt [$kind:expr]) => {{
        const SHAPE: Shape = Shape::plain($count, words!(@example $word $default));
        $m.list($b, $word, &SHAPE, $kind).unwrap_or_default()
    }};
    (@read file [$m:ident $n:ident $b:ident] $word:literal [] $default:tt []) => {
        words!(@written one [$m $n $b] $word $default $crate::decode::path).map(|path| $m.files.at(path))
    };
    (@read table [$m:ident $n:ident $b:ident] $word:literal [] defaults [$kind:expr]) => {
        child($b, $word).map_or_else($kind.default, |node| $kind.read($m, node))
    };
    (@read table [$m:ident $n:ident $b:ident] $word:literal [] ($text:literal) [$kind:expr]) => {
        child($b, $word).map_or_else($kind.default, |node| $kind.read($m, node))
    };
    (@read table [$m:ident $n:ident $b:ident] $word:literal [] (none: $text:literal) [$kind:expr]) => {
        words!(@read table [$m $n $b] $word [] none [$kind])
    };
    (@read table [$m:ident $n:ident $b:ident] $word:literal [] $absent:ident [$kind:expr]) => {
        child($b, $word).map(|node| $kind.read($m, node))
    };
    (@read tables [$m:ident $n:ident $b:ident] $word:literal [] $default:tt [$kind:expr]) => {
        named_nodes($b, $word).filter_map(|node| $kind.read($m, node)).collect()
    };
    (@read hand $($rest:tt)*) => { Default::default() };
    (@read hands $($rest:tt)*) => { Default::default() };
    (@read values $($rest:tt)*) => { Default::default() };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal []
        ($text:literal: $($example:literal)+, else $absent:expr) [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word ($text: $($example)+) $kind).unwrap_or_else(|| $absent)
    };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal [] required [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word required $kind).unwrap_or_default()
    };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal [] $default:literal [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word $default $kind)
            .unwrap_or_else(|| words!(@default $default [$kind]))
    };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal [] $default:tt [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word $default $kind)
    };
    // `@word` reports what is wrong with this row.
    (@read $($wrong:tt)*) => { Default::default() };
    (@written one [$m:ident $n:ident $b:ident] $word:literal $default:tt $kind:expr) => {
        $m.scalar($b, words!(@example $word $default), $kind)
    };
    (@written property [$m:ident $n:ident $b:ident] $word:literal $default:tt $kind:expr) => { $m.property($n, $word, $kind) };
    (@written value [$m:ident $n:ident $b:ident] $word:literal $default:tt $kind:expr) => { $m.argument($n, $kind) };
    (@written $($wrong:tt)*) => { None };

    // The default.
    (@default $default:literal [$kind:expr]) => { ($kind)(&kdl::KdlValue::from($default)).unwrap_or_default() };
    (@default ($text:literal: $($example:literal)+, else $absent:expr) [$kind:expr]) => { $absent };
    (@default defaults [$kind:expr]) => { ($kind.default)() };
    (@default $default:tt [$($kind:expr)?]) => { Default::default() };

    // A correct example.
    (@example $word:literal ($text:literal: $($example:literal)+ $(, else $absent:expr)?)) => { concat!($word $(, " ", stringify!($example))+) };
    (@example $word:literal $default:literal) => { concat!($word, " ", stringify!($default)) };

    // The row.
    (@word switch $word:literal [] off [] $bounds:tt $meaning:tt) => {
        Word {
            shape: &Shape::plain(0..=1, $word),
            ..words!(@row $word Form::Switch, off $bounds $meaning)
        }
    };
    (@word one $word:literal [] $($rest:tt)*) => { words!(@word list $word [1..=1] $($rest)*) };
    (@word file $word:literal [] $default:tt [] $bounds:tt $meaning:tt) => {
        words!(@word one $word [] $default [$crate::decode::path] $bounds $meaning)
    };
    (@word list $word:literal [$count:expr] $default:tt [$kind:expr] $bounds:tt $meaning:tt) => {
        Word {
            kind: Some(|value| ($kind)(value).map(drop)),
            shape: &Shape::plain($count, words!(@example $word $default)),
            ..words!(@row $word Form::Node, $default $bounds $meaning)
        }
    };
    (@word property $word:literal [] $default:tt [$kind:expr] $bounds:tt $meaning:tt) => {
        Word {
            kind: Some(|value| ($kind)(value).map(drop)),
            ..words!(@row $word Form::Property, $default $bounds $meaning)
        }
    };
    (@word value $word:literal [] $default:tt [$kind:expr] $bounds:tt $meaning:tt) => {
        Word {
            kind: Some(|value| ($kind)(value).map(drop)),
            ..words!(@word values $word [] $default [] $bounds $meaning)
        }
    };
    (@word values $word:literal [] $default:tt [] $bounds:tt $meaning:tt) => {
        Word {
            shape: &VALUES,
            ..words!(@row $word Form::Values, $default $bounds $meaning)
        }
    };
    (@word hands $word:literal [] $default:tt [$table:expr] $bounds:tt $meaning:tt) => {
        Word {
            form: Form::Repeated,
            ..words!(@word hand $word [] $default [$table] $bounds $meaning)
        }
    };
    (@word stage $word:literal [] $default:tt [$table:expr] $bounds:tt $meaning:tt) => {
        Word {
            form: Form::Stage,
            ..words!(@word hand $word [] $default [$table] $bounds $meaning)
        }
    };
    (@word table $($rest:tt)*) => { words!(@word hand $($rest)*) };
    (@word tables $($rest:tt)*) => { words!(@word hands $($rest)*) };
    (@word hand $word:literal [] $default:tt [$table:expr] $bounds:tt $meaning:tt) => {
        Word {
            shape: &$table.shape,
            words: $table.words,
            ..words!(@row $word Form::Node, $default $bounds $meaning)
        }
    };
    (@word $form:ident $word:literal $($wrong:tt)*) => {
        compile_error!(concat!("the row of `", $word, "`: a `", stringify!($form), "` is not written so; words.rs shows how"))
    };
    (@row $word:literal $form:expr, $default:tt [$($bounds:literal)?] [$($meaning:literal)+]) => {
        Word {
            name: $word,
            form: $form,
            meaning: concat!($($meaning),+),
            default: words!(@preset $default),
            kind: None,
            bounds: concat!($($bounds)?),
            shape: &Shape::plain(0..=0, ""),
            words: &[],
        }
    };
    (@preset $default:literal) => { Preset::Value(stringify!($default)) };
    (@preset ($text:literal $(: $($example:literal)+ $(, else $absent:expr)?)?)) => { Preset::Text($text) };
    (@preset (none: $text:literal)) => { Preset::Text($text) };
    (@preset defaults) => { Preset::Text("") };
    (@preset $absent:ident) => { Preset::Text(stringify!($absent)) };
}
pub(crate) use words;
