//! The words of the configuration: a row each, in a table beside what obeys it.
//!
//! From a row come the field, its decoder and its default, the word in the node's [`Shape`], and all that the reference,
//! `dnsweir words`, the schema for editors and the fuzzers' dictionary say of it. What a value may be, its *kind* says by
//! what it refuses.
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
//! The first line names the node's fields and its [`Table`], how many values the node has, and a correct one. A row is what
//! the word means, how it is written, the word, the field, the default, the kind, and what the reference says of its bounds
//! if the kind cannot. How it is written:
//!
//! - `one`: a node with one value. `property`: a property of the node. `value`: the value of the node itself.
//! - `list "WORD"(1..=16)`: a node with so many values.
//! - `switch`: a node that is on when it is there.
//! - `table`: a node with a table of its own. Absent, it is `none`, `off`, or has its `defaults`.
//! - `hand`, and `hands` if it may be repeated: a node whose field the code beside the table fills in. `stage`: one that stands
//!   in an order. `values`: the values of the node itself, likewise.
//!
//! A default is a value, or in parentheses what the reference says in its place, with a correct value to show:
//! `("all": "shop")`, and after `else` what the field has then, unless that is `None`. A function after `then` looks at the
//! fields together. Words without a field stand in `by hand { … }`, fields without a word in `besides { … }`.

use std::ops::RangeInclusive;

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Takes, Wrong, block};

/// What may be written in a node, and how it is read.
pub(crate) struct Table<T> {
    /// What the node is checked against.
    pub shape: Shape,
    /// Its rows.
    pub words: &'static [Word],
    /// Reads a node that has been checked, and the nodes in its block.
    pub fields: fn(&mut Mistakes, &KdlNode, &[KdlNode]) -> T,
    /// What an empty node says.
    pub default: fn() -> T,
}

impl<T> Table<T> {
    /// Reads a node, and reports what is wrong with it.
    pub fn read(&self, mistakes: &mut Mistakes, node: &KdlNode) -> T {
        mistakes.check(node, &self.shape);
        (self.fields)(mistakes, node, block(node))
    }
}

impl Table<()> {
    /// A node that takes nothing but values, which are read by hand.
    pub const fn plain(values: RangeInclusive<usize>, example: &'static str) -> Table<()> {
        Table {
            shape: Shape::plain(values, example),
            words: &[],
            fields: |_, _, _| (),
            default: || (),
        }
    }
}

/// A row.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub name: &'static str,
    pub form: Form,
    /// A paragraph in Markdown.
    pub meaning: &'static str,
    pub default: Preset,
    /// Refuses what a value of it may not be; none: that is found out by hand.
    pub kind: Option<Check>,
    /// What the kind cannot say of its bounds.
    pub bounds: &'static str,
    /// A node's, or that of the node whose values they are; a property has none.
    pub shape: &'static Shape,
    /// The table of the node.
    pub words: &'static [Word],
}

/// What is wrong with a value.
pub(crate) type Check = fn(&KdlValue) -> Result<(), Wrong>;

/// How a word is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The values of the node itself.
    Values,
    Property,
    Node,
    /// A node that is on when it is there.
    Switch,
    /// A node that may be written more than once.
    Repeated,
    /// A node that stands in an order, with rules of its own.
    Stage,
}

/// What holds where a word is not written.
#[derive(Clone, Copy)]
pub(crate) enum Preset {
    /// As it would be written, but for the `#` of `#true`.
    Value(&'static str),
    /// In the words of the reference.
    Text(&'static str),
}

impl Word {
    /// What its kind takes.
    pub(super) fn takes(&self) -> Takes {
        // Nothing is of a kind that is `#null`.
        let refused = self.kind.and_then(|kind| kind(&KdlValue::Null).err());
        refused.map_or(Takes::Text, |wrong| wrong.takes)
    }

    /// Whether a list of `words` has it: what a node's value is, is said with the node if that has no table of its own.
    pub(super) fn is_listed(&self, words: &[Word]) -> bool {
        self.form != Form::Values || words.iter().any(Word::is_node)
    }

    /// Whether it stands in the block of its node.
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

/// Some of the words of a table.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    Properties,
    Nodes,
    Repeated,
}

/// How many of `words` there are.
pub(crate) const fn count(words: &[Word], which: Which) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < words.len() {
        found += words[at].is(which) as usize;
        at += 1;
    }
    found
}

/// What they are called.
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

/// See the beginning of this file.
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
                decode::{Mistakes, Shape, child},
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
            fn fields(mistakes: &mut Mistakes, node: &kdl::KdlNode, nodes: &[kdl::KdlNode]) -> $T {
                let read = words!(@new $T {
                    // With its type, which an error is then shown at.
                    $( $field: {
                        let value: $F = words!(@read $form [mistakes node nodes] $word [$($count)?] $default [$($kind)?]);
                        value
                    }, )*
                    $($( $other: Default::default(), )*)?
                });
                $(
                    let mut read = read;
                    $then(mistakes, node, &mut read);
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

    // How a field is read.
    (@read switch [$m:ident $n:ident $b:ident] $word:literal [] off []) => { $m.switch($b, $word) };
    (@read list [$m:ident $n:ident $b:ident] $word:literal [$count:expr] $default:tt [$kind:expr]) => {{
        const SHAPE: Shape = Shape::plain($count, words!(@example $word $default));
        $m.list($b, $word, &SHAPE, $kind).unwrap_or_default()
    }};
    (@read table [$m:ident $n:ident $b:ident] $word:literal [] defaults [$kind:expr]) => {
        child($b, $word).map_or_else($kind.default, |node| $kind.read($m, node))
    };
    (@read table [$m:ident $n:ident $b:ident] $word:literal [] $absent:ident [$kind:expr]) => {
        child($b, $word).map(|node| $kind.read($m, node))
    };
    (@read hand $($rest:tt)*) => { Default::default() };
    (@read hands $($rest:tt)*) => { Default::default() };
    (@read stage $($rest:tt)*) => { Default::default() };
    (@read values $($rest:tt)*) => { Default::default() };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal []
        ($text:literal: $($example:literal)+, else $absent:expr) [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word ($text: $($example)+) $kind).unwrap_or_else(|| $absent)
    };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal [] $default:literal [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word $default $kind)
            .unwrap_or_else(|| words!(@default $default [$kind]))
    };
    (@read $form:ident [$m:ident $n:ident $b:ident] $word:literal [] $default:tt [$kind:expr]) => {
        words!(@written $form [$m $n $b] $word $default $kind)
    };
    // What is wrong with it, `@word` says.
    (@read $($wrong:tt)*) => { Default::default() };
    (@written one [$m:ident $n:ident $b:ident] $word:literal $default:tt $kind:expr) => {
        $m.scalar($b, words!(@example $word $default), $kind)
    };
    (@written property [$m:ident $n:ident $b:ident] $word:literal $default:tt $kind:expr) => { $m.property($n, $word, $kind) };
    (@written value [$m:ident $n:ident $b:ident] $word:literal $default:tt $kind:expr) => { $m.argument($n, $kind) };
    (@written $($wrong:tt)*) => { None };

    // What holds where nothing is written.
    (@default $default:literal [$kind:expr]) => { ($kind)(&kdl::KdlValue::from($default)).unwrap_or_default() };
    (@default ($text:literal: $($example:literal)+, else $absent:expr) [$kind:expr]) => { $absent };
    (@default defaults [$kind:expr]) => { ($kind.default)() };
    (@default $default:tt [$($kind:expr)?]) => { Default::default() };

    // A correct one.
    (@example $word:literal ($text:literal: $($example:literal)+ $(, else $absent:expr)?)) => { concat!($word $(, " ", stringify!($example))+) };
    (@example $word:literal $default:literal) => { concat!($word, " ", stringify!($default)) };

    // What is known of it.
    (@word switch $word:literal [] off [] $bounds:tt $meaning:tt) => {
        Word {
            shape: &Shape::plain(0..=1, $word),
            ..words!(@row $word Form::Switch, off $bounds $meaning)
        }
    };
    (@word one $word:literal [] $default:tt [$kind:expr] $bounds:tt $meaning:tt) => {
        Word {
            kind: Some(|value| ($kind)(value).map(drop)),
            shape: &Shape::plain(1..=1, words!(@example $word $default)),
            ..words!(@row $word Form::Node, $default $bounds $meaning)
        }
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
    (@preset defaults) => { Preset::Text("") };
    (@preset $absent:ident) => { Preset::Text(stringify!($absent)) };
}
pub(crate) use words;
