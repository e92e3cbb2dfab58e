//! `$GENERATE`, as in BIND 9: one line for each number of a range.

use std::fmt::Write as _;

use super::entries::Word;
use super::mistake::Wrong;

/// The most lines of one `$GENERATE`: as many as a network of sixteen bits has addresses.
const MOST: u64 = 65_536;

/// The longest number that is written, with digits and dots.
const WIDEST: usize = 255;

/// The template of a line, and its numbers.
pub struct Generate<'t> {
    numbers: std::iter::StepBy<std::ops::RangeInclusive<i64>>,
    /// The owner.
    pub owner: &'t [u8],
    /// TTL, class and type, as written.
    pub between: Vec<Word<'t>>,
    /// The data.
    pub data: Vec<u8>,
}

impl<'t> Generate<'t> {
    /// Parses the words after `$GENERATE`: a range, an owner, optional TTL and class, a type, and data in one
    /// word.
    pub fn new(words: &[Word<'t>]) -> Result<Generate<'t>, Wrong> {
        let [range, owner, between @ .., data] = words else {
            return Err(wrong("`$GENERATE` needs a range, a name, a type and data"));
        };
        if between.is_empty() || between.len() > 3 {
            return Err(wrong("`$GENERATE` needs a type, and its data as one word"));
        }
        Ok(Generate {
            numbers: numbers(range)?,
            owner: owner.text,
            between: between.to_vec(),
            data: unquoted(data),
        })
    }

    /// Each number, in order.
    pub fn numbers(&self) -> impl Iterator<Item = i64> + use<> {
        self.numbers.clone()
    }
}

/// The content of a word. In quotes, a backslash before a quote is removed, as in BIND.
fn unquoted(word: &Word<'_>) -> Vec<u8> {
    if !word.quoted {
        return word.text.to_vec();
    }
    let (mut text, mut octets) = (Vec::with_capacity(word.text.len()), word.text.iter().copied());
    while let Some(octet) = octets.next() {
        let next = if octet == b'\\' { octets.next() } else { None };
        match next {
            Some(b'"') => text.push(b'"'),
            Some(next) => text.extend([octet, next]),
            None => text.push(octet),
        }
    }
    text
}

fn wrong(problem: impl Into<String>) -> Wrong {
    let help = "write it as: $GENERATE 1-254 host-$ A 10.0.0.$, with data that has blanks in quotes";
    Wrong::new(problem, help)
}

fn numbers(range: &Word<'_>) -> Result<std::iter::StepBy<std::ops::RangeInclusive<i64>>, Wrong> {
    let text = range.shown();
    let (range, step) = text.split_once('/').unwrap_or((&text, "1"));
    let read = |text: &str| {
        text.parse::<u32>()
            .ok()
            .filter(|number| i32::try_from(*number).is_ok())
    };
    let parts = range
        .split_once('-')
        .map(|(first, last)| (read(first), read(last), read(step)));
    let Some((Some(first), Some(last), Some(step @ 1..))) = parts else {
        return Err(wrong(format!("{text:?} is not a range")));
    };
    if first > last {
        return Err(wrong(format!("the range {text} ends before it begins")));
    }
    let count = u64::from((last - first) / step) + 1;
    if count > MOST {
        let problem = format!("the range {text} has {count} numbers, and {MOST} are the most");
        return Err(Wrong::new(
            problem,
            "write several `$GENERATE`, or the records themselves",
        ));
    }
    Ok((i64::from(first)..=i64::from(last)).step_by(step as usize))
}

/// `text` with each `$` replaced by a number. Characters escaped with a backslash stay as they are.
pub fn expand(text: &[u8], number: i64) -> Result<Vec<u8>, Wrong> {
    let mut out = Vec::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        match (octet, tail.first()) {
            (b'\\', Some(&next)) => {
                out.extend([octet, next]);
                rest = &tail[1..];
            }
            (b'$', Some(b'$')) => {
                out.extend(b"\\$");
                rest = &tail[1..];
            }
            (b'$', Some(b'{')) => {
                let close = tail.iter().position(|octet| *octet == b'}');
                let Some(close) = close else {
                    return Err(wrong("`${` is never closed"));
                };
                out.extend(Form::read(&tail[1..close])?.write(number)?.into_bytes());
                rest = &tail[close + 1..];
            }
            (b'$', _) => out.extend(number.to_string().into_bytes()),
            _ => out.push(octet),
        }
    }
    Ok(out)
}

/// `${OFFSET,WIDTH,BASE}`
struct Form {
    offset: i64,
    width: usize,
    base: u8,
}

impl Form {
    fn read(text: &[u8]) -> Result<Form, Wrong> {
        let text = String::from_utf8_lossy(text);
        let bad = || {
            wrong(format!(
                "`${{{text}}}` is not an offset, a width and a base such as `${{-1,3,x}}`"
            ))
        };
        let mut parts = text.split(',');
        let offset = parts
            .next()
            .and_then(|part| part.parse::<i32>().ok())
            .ok_or_else(bad)?;
        let width = match parts.next() {
            Some(part) => part
                .parse()
                .ok()
                .filter(|width| *width <= WIDEST)
                .ok_or_else(bad)?,
            None => 0,
        };
        let base = match parts.next().map(str::as_bytes) {
            None => b'd',
            Some(&[base @ (b'd' | b'o' | b'x' | b'X' | b'n' | b'N')]) => base,
            Some(_) => return Err(bad()),
        };
        match parts.next() {
            None => Ok(Form {
                offset: offset.into(),
                width,
                base,
            }),
            Some(_) => Err(bad()),
        }
    }

    fn write(&self, number: i64) -> Result<String, Wrong> {
        let (number, width) = (number + self.offset, self.width);
        if number < 0 {
            return Err(wrong(format!(
                "the offset {} makes a number below zero",
                self.offset
            )));
        }
        Ok(match self.base {
            b'o' => format!("{number:0width$o}"),
            b'x' => format!("{number:0width$x}"),
            b'X' => format!("{number:0width$X}"),
            b'n' | b'N' => self.nibbles(number),
            _ => format!("{number:0width$}"),
        })
    }

    /// Hexadecimal digits as labels, the last one first. The width includes the dots.
    fn nibbles(&self, mut number: i64) -> String {
        let mut text = String::new();
        let mut left = self.width;
        loop {
            // Infallible for String.
            let _ = match self.base {
                b'n' => write!(text, "{:x}", number & 15),
                _ => write!(text, "{:X}", number & 15),
            };
            number >>= 4;
            left = left.saturating_sub(1);
            if left > 0 || number != 0 {
                text.push('.');
                left = left.saturating_sub(1);
            }
            if number == 0 && left == 0 {
                return text;
            }
        }
    }
}
