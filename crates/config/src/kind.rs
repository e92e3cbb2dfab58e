//! Kinds of values: functions that read a KDL value, or explain why it does not fit.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use kdl::KdlValue;

/// A function from a value to what it means, or to why it is not of the kind.
pub trait Kind<T>: Fn(&KdlValue) -> Result<T, Wrong> {}

impl<T, F: Fn(&KdlValue) -> Result<T, Wrong>> Kind<T> for F {}

/// Why a value is not of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Continues a sentence that begins with the value: "is not a duration".
    pub problem: String,
    /// What to write instead.
    pub help: String,
    /// The values that the kind takes, for programs.
    pub takes: Takes,
}

impl Wrong {
    /// Makes one from a problem and its remedy.
    pub fn new(problem: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong {
            problem: problem.into(),
            help: help.into(),
            takes: Takes::Text,
        }
    }

    /// Makes one from a problem and what the kind takes, which also gives the remedy.
    pub(crate) fn taking(problem: &str, takes: Takes) -> Wrong {
        Wrong {
            help: takes.help(),
            takes,
            ..Wrong::new(problem, "")
        }
    }
}

/// The values that a kind takes. Bounds are spelled as in the configuration, without quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takes {
    /// Any other text.
    Text,
    /// `#true` or `#false`.
    Boolean,
    /// One of these words.
    Words(Vec<&'static str>),
    /// A whole number between two bounds.
    Whole(String, String),
    /// A duration between two bounds.
    Duration(String, String),
    /// A number of bytes between two bounds.
    Size(String, String),
}

impl Takes {
    /// The help text for a value of another kind.
    fn help(&self) -> String {
        match self {
            Takes::Text => "put it in quotes".to_owned(),
            Takes::Boolean => "write #true or #false".to_owned(),
            Takes::Words(words) => format!("valid here: {}", words.join(", ")),
            Takes::Whole(least, most) => format!("write a whole number from {least} to {most}"),
            Takes::Duration(least, most) => {
                format!("write a whole number with a unit (ms, s, m, h, d), from \"{least}\" to \"{most}\"")
            }
            Takes::Size(least, most) => {
                format!("write a whole number with a unit (B, KiB, MiB, GiB), from \"{least}\" to \"{most}\"")
            }
        }
    }
}

/// Reads a string.
pub fn text(value: &KdlValue) -> Result<String, Wrong> {
    match value {
        KdlValue::String(text) => Ok(text.clone()),
        _ => Err(Wrong::taking("is not a string", Takes::Text)),
    }
}

/// Reads a string that `parse` accepts; `problem` and `help` are about any other.
pub(crate) fn parsed<T>(
    value: &KdlValue,
    parse: impl FnOnce(&str) -> Option<T>,
    problem: &str,
    help: &str,
) -> Result<T, Wrong> {
    parse(&text(value)?).ok_or_else(|| Wrong::new(problem, help))
}

/// Reads a string that `fits`; `problem` and `help` are about any other.
pub(crate) fn fitting(
    value: &KdlValue,
    fits: impl FnOnce(&str) -> bool,
    problem: &str,
    help: &str,
) -> Result<String, Wrong> {
    parsed(value, |text| fits(text).then(|| text.to_owned()), problem, help)
}

/// Reads the path of a file or folder.
pub(crate) fn path(value: &KdlValue) -> Result<PathBuf, Wrong> {
    text(value).map(PathBuf::from)
}

/// Reads `#true` or `#false`.
pub fn boolean(value: &KdlValue) -> Result<bool, Wrong> {
    value
        .as_bool()
        .ok_or_else(|| Wrong::taking("is not a boolean", Takes::Boolean))
}

/// Reads a whole number within `bounds`.
pub fn whole<T>(bounds: RangeInclusive<T>) -> impl Kind<T>
where
    T: TryFrom<i128> + PartialOrd + std::fmt::Display,
{
    move |value: &KdlValue| {
        let takes = || Takes::Whole(bounds.start().to_string(), bounds.end().to_string());
        let Some(number) = value.as_integer() else {
            return Err(Wrong::taking("is not a whole number", takes()));
        };
        match T::try_from(number) {
            Ok(number) if bounds.contains(&number) => Ok(number),
            _ => Err(Wrong::taking("is out of range", takes())),
        }
    }
}

/// Reads one of a few words.
pub fn word<T: Copy>(words: &[(&'static str, T)]) -> impl Kind<T> {
    move |value: &KdlValue| {
        let names: Vec<&'static str> = words.iter().map(|(name, _)| *name).collect();
        let text = value.as_string().unwrap_or_default();
        let found = words.iter().find(|(name, _)| *name == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| Wrong {
            takes: Takes::Words(names.clone()),
            ..Wrong::new("is not a valid value", suggestion(text, &names, ""))
        })
    }
}

/// Help for a word that is not among `known`: the one that was probably meant, else the whole list, or
/// `example` if `known` is empty.
pub(crate) fn suggestion(word: &str, known: &[&str], example: &str) -> String {
    match nearest(word, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if known.is_empty() => format!("write: {example}"),
        None => format!("valid here: {}", known.join(", ")),
    }
}

/// Returns the entry of `known` closest to `word`, if at most a third of the letters differ (at least one).
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: String = word.chars().take(64).flat_map(char::to_lowercase).collect();
    let allowed = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(&word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
