//! How a registry wants to know who asks: `WWW-Authenticate` (RFC 9110 section 11.6.1).

/// Between words.
const SEPARATORS: [char; 5] = [' ', '\t', ',', '=', '"'];

/// A scheme of authentication with its parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct Challenge {
    /// In lower case.
    pub scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Reads the challenges in a header. What is none is skipped.
    pub fn read(header: &str) -> Vec<Challenge> {
        let mut challenges: Vec<Challenge> = Vec::new();
        let mut rest = header.trim_start_matches(SEPARATORS);
        while !rest.is_empty() {
            let (word, after) = rest.split_at(rest.find(SEPARATORS).unwrap_or(rest.len()));
            let word = word.to_ascii_lowercase();
            // A scheme is followed by its parameters, and each of them by its value.
            rest = match after.trim_start().strip_prefix('=') {
                None => {
                    challenges.push(Challenge {
                        scheme: word,
                        parameters: Vec::new(),
                    });
                    after
                }
                Some(after) => {
                    let (value, after) = value(after.trim_start());
                    if let Some(last) = challenges.last_mut() {
                        last.parameters.push((word, value));
                    }
                    after
                }
            };
            rest = rest.trim_start_matches(SEPARATORS);
        }
        challenges
    }

    /// Returns the value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        let (_, value) = parameters.find(|(known, _)| known == name)?;
        Some(value)
    }
}

/// Splits a text after the value that it begins with: a token or a quoted string (RFC 9110 section 5.6.4).
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([' ', '\t', ',']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => value.extend(characters.next()),
            other => value.push(other),
        }
    }
    (value, characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the challenges in a header as text.
    fn read(header: &str) -> String {
        let mut text = String::new();
        for Challenge { scheme, parameters } in Challenge::read(header) {
            text += &format!("[{scheme}]");
            for (name, value) in parameters {
                text += &format!(" {name}={value};");
            }
        }
        text
    }

    #[test]
    fn challenges_are_read() {
        for (header, expected) in [
            ("Basic", "[basic]"),
            ("Basic realm=\"a b\"", "[basic] realm=a b;"),
            (
                "Bearer realm=\"https://auth.example/token\",service=\"r, =\\\"x\\\"\" , scope = pull",
                "[bearer] realm=https://auth.example/token; service=r, =\"x\"; scope=pull;",
            ),
            (
                "Negotiate, BEARER Realm=x, Basic realm=y, charset=\"UTF-8\"",
                "[negotiate][bearer] realm=x;[basic] realm=y; charset=UTF-8;",
            ),
            ("Negotiate YWJj==, Basic", "[negotiate] ywjj==;[basic]"),
            ("Bearer realm=\"unfinished", "[bearer] realm=unfinished;"),
            ("Bearer realm=", "[bearer] realm=;"),
            ("realm=\"x\"", ""),
            (" , =\"", ""),
            ("", ""),
        ] {
            assert_eq!(read(header), expected, "{header}");
        }
    }

    #[test]
    fn parameters_are_found_in_any_case() {
        let challenges = Challenge::read("bearer REALM=\"https://auth.example/\"");
        assert_eq!(challenges[0].parameter("realm"), Some("https://auth.example/"));
        assert_eq!(challenges[0].parameter("service"), None);
    }
}
