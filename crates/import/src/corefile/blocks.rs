//! Reads server blocks: their keys and plugins, with snippets and imports expanded.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{Diagnostic, Source, Span, read_source};

use super::tokens::{Token, replace_variables, tokens};

/// The most imports of one Corefile, so that one that imports itself ends.
const MOST_IMPORTS: usize = 1000;

/// The most words of one Corefile, including everything it imports.
const MOST_TOKENS: usize = 200_000;

/// `KEY… { PLUGIN… }`
#[derive(Debug, Clone)]
pub struct Block {
    /// The names, ports and schemes before the brace.
    pub keys: Vec<Token>,
    /// The plugins in the braces, in order.
    pub plugins: Vec<Plugin>,
    /// Why it was not translated; if not empty, it keeps its addresses and clients, and refuses all queries.
    pub refused: Vec<String>,
}

impl Block {
    /// Whether a mistake is inside it. One without a place is in no block.
    pub fn has(&self, mistake: &Diagnostic) -> bool {
        let (offset, length) = (mistake.span.start, mistake.span.length);
        let lines = self.plugins.iter().flat_map(|plugin| {
            let options = plugin.options.iter().map(PluginOption::span);
            options.chain([plugin.span()])
        });
        let keys = self.keys.iter().map(|key| key.span);
        length > 0
            && keys
                .chain(lines)
                .any(|span| (span.start..span.end()).contains(&offset))
    }

    /// Reduces it to a block that refuses all queries.
    pub fn refusing(mut self, reasons: Vec<String>) -> Block {
        let stays = |plugin: &Plugin| ["bind", "tls", "view"].contains(&plugin.name.text.as_str());
        self.plugins.retain(stays);
        self.refused = reasons;
        self
    }
}

/// One use of a plugin in a block.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// Its name.
    pub name: Token,
    /// The rest of its line.
    pub arguments: Vec<Token>,
    /// The lines in its braces, if it has any.
    pub options: Vec<PluginOption>,
}

/// A line in a plugin's braces.
#[derive(Debug, Clone)]
pub struct PluginOption {
    /// Its first word.
    pub name: Token,
    /// The other words.
    pub arguments: Vec<Token>,
}

impl Plugin {
    /// The span of its first line.
    pub fn span(&self) -> Span {
        line(&self.name, &self.arguments)
    }
}

impl PluginOption {
    /// The span of the whole line.
    pub fn span(&self) -> Span {
        line(&self.name, &self.arguments)
    }
}

/// From the first to the last word, if both are in one file.
fn line(first: &Token, others: &[Token]) -> Span {
    let end = others.last().map_or(first.span.end(), |last| last.span.end());
    (first.span.start..end.max(first.span.end())).into()
}

/// A Corefile and everything it imports.
#[derive(Debug, Clone)]
pub struct Corefile {
    /// The texts of all files.
    pub source: Source,
    /// The server blocks, in order.
    pub blocks: Vec<Block>,
    /// Every file read besides the Corefile itself, and the folders searched for a pattern.
    pub files: Vec<PathBuf>,
}

/// Reads server blocks.
struct Reader<'a> {
    source: Source,
    /// The offset of each part of the source, and the folder for its relative paths.
    folders: Vec<(usize, PathBuf)>,
    /// The words not read yet, in reverse order.
    ahead: Vec<Token>,
    snippets: HashMap<String, Vec<Token>>,
    imports: usize,
    files: Vec<PathBuf>,
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// The span of the last word, to report something missing after it.
    last: Span,
}

/// The most bytes of one Corefile, including everything it imports.
const MOST_OCTETS: usize = 4 << 20;

type Read<T> = Result<T, Diagnostic>;

/// Reads a Corefile. `variable` looks up environment variables; relative imports start at `folder`.
///
/// # Errors
/// The first syntax error, with the source read so far.
pub fn read(
    source: Source,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Corefile, (Source, Diagnostic)> {
    let mut ahead = tokens(source.text(), 0);
    ahead.reverse();
    let mut reader = Reader {
        source,
        folders: vec![(0, folder.to_owned())],
        ahead,
        snippets: HashMap::new(),
        imports: 0,
        files: Vec::new(),
        variable,
        last: Span::default(),
    };
    match reader.blocks() {
        Ok(blocks) => Ok(Corefile {
            source: reader.source,
            blocks,
            files: reader.files,
        }),
        Err(diagnostic) => Err((reader.source, diagnostic)),
    }
}

impl Reader<'_> {
    fn next(&mut self) -> Option<Token> {
        let token = self.ahead.pop()?;
        self.last = token.span;
        Some(token)
    }

    fn peek(&self) -> Option<&Token> {
        self.ahead.last()
    }

    /// Replaces the variables in a word.
    fn resolved(&self, mut token: Token) -> Token {
        token.text = replace_variables(&token.text, self.variable);
        token
    }

    fn blocks(&mut self) -> Read<Vec<Block>> {
        let mut blocks = Vec::new();
        while self.peek().is_some() {
            let keys = self.keys()?;
            match snippet_name(&keys) {
                Some(name) => self.snippet(&keys[0], name)?,
                None if keys.is_empty() => {
                    // An import of nothing, or a block without keys.
                    if let Some(brace) = self.ahead.last().filter(|token| token.is("{")) {
                        let problem = Diagnostic::new(brace.span, "this block has no names");
                        return Err(problem.help("write what it answers for in front of it, such as `.:53`"));
                    }
                }
                None => {
                    let plugins = self.plugins()?;
                    blocks.push(Block {
                        keys,
                        plugins,
                        refused: Vec::new(),
                    });
                }
            }
        }
        Ok(blocks)
    }

    /// Reads the words before the brace. After a comma, they may continue on the next line.
    fn keys(&mut self) -> Read<Vec<Token>> {
        let mut keys: Vec<Token> = Vec::new();
        let mut comma: Option<Span> = None;
        while let Some(token) = self.peek() {
            if token.is("{") || !keys.is_empty() && comma.is_none() && token.begins_line {
                break;
            }
            if token.is("}") {
                return Err(Diagnostic::new(token.span, "this brace closes nothing").help("remove it"));
            }
            if token.text == "import" && token.begins_line && !token.quoted {
                self.import()?;
                continue;
            }
            let Some(token) = self.next() else { break };
            let mut token = self.resolved(token);
            comma = token.text.ends_with(',').then_some(token.span);
            if comma.is_some() {
                token.text.pop();
            }
            if !token.text.is_empty() {
                keys.push(token);
            }
        }
        match comma {
            Some(span) => {
                Err(Diagnostic::new(span, "another name must follow the comma").help("remove the comma"))
            }
            None => Ok(keys),
        }
    }

    /// Reads the plugins of a block and its braces, which are optional if the file is a single block.
    fn plugins(&mut self) -> Read<Vec<Plugin>> {
        let open = match self.peek() {
            Some(token) if token.is("{") => self.next().map(|token| token.span),
            _ => None,
        };
        let mut plugins = Vec::new();
        loop {
            let Some(token) = self.peek() else {
                return match open {
                    Some(open) => Err(unclosed(open)),
                    None => Ok(plugins),
                };
            };
            if token.is("}") {
                let span = token.span;
                self.next();
                return match open {
                    Some(_) => Ok(plugins),
                    None => Err(Diagnostic::new(span, "this brace closes nothing").help("remove it")),
                };
            }
            if token.text == "import" && !token.quoted {
                self.import()?;
                continue;
            }
            plugins.push(self.plugin()?);
        }
    }

    fn plugin(&mut self) -> Read<Plugin> {
        let (name, arguments) = self.line()?;
        let mut options = Vec::new();
        if let Some(brace) = self.peek().filter(|token| token.is("{") && !token.begins_line) {
            let open = brace.span;
            self.next();
            loop {
                let Some(token) = self.peek() else {
                    return Err(unclosed(open));
                };
                if token.is("}") {
                    self.next();
                    break;
                }
                if token.text == "import" && token.begins_line && !token.quoted {
                    self.import()?;
                    continue;
                }
                let (name, arguments) = self.line()?;
                options.push(PluginOption { name, arguments });
            }
        }
        Ok(Plugin {
            name,
            arguments,
            options,
        })
    }

    /// Reads a word and the others on its line, up to a brace.
    fn line(&mut self) -> Read<(Token, Vec<Token>)> {
        let Some(first) = self.next() else {
            return Err(Diagnostic::new(self.last, "something is missing here"));
        };
        if first.is("{") {
            let problem = Diagnostic::new(first.span, "a plugin must come before this brace");
            return Err(problem.help("put the brace at the end of the plugin's line"));
        }
        let first = self.resolved(first);
        let mut others = Vec::new();
        while let Some(token) = self
            .ahead
            .pop_if(|token| !token.begins_line && !token.is("{") && !token.is("}"))
        {
            self.last = token.span;
            others.push(self.resolved(token));
        }
        if let Some(brace) = self.peek().filter(|token| token.is("}") && !token.begins_line) {
            let problem = Diagnostic::new(brace.span, "CoreDNS takes this brace for an argument");
            return Err(problem.help("write it on its own line"));
        }
        Ok((first, others))
    }

    /// Stores `(NAME) { … }` for `import NAME`.
    fn snippet(&mut self, key: &Token, name: String) -> Read<()> {
        if self.snippets.contains_key(&name) {
            let again = Diagnostic::new(key.span, format!("the snippet {name} is written twice"));
            return Err(again.help("keep one of them"));
        }
        let Some(open) = self.ahead.pop_if(|token| token.is("{")) else {
            let bare = Diagnostic::new(key.span, "a snippet needs braces");
            return Err(bare.help(format!("write: ({name}) {{ … }}")));
        };
        let (mut depth, mut body) = (1, Vec::new());
        loop {
            let Some(token) = self.next() else {
                return Err(unclosed(open.span));
            };
            depth += usize::from(token.is("{"));
            depth -= usize::from(token.is("}"));
            if depth == 0 {
                break;
            }
            body.push(token);
        }
        self.snippets.insert(name, body);
        Ok(())
    }

    /// Expands `import WHAT`: a snippet, a file, or all files that match a pattern.
    fn import(&mut self) -> Read<()> {
        let Some(word) = self.next() else { return Ok(()) };
        let Some(what) = self.ahead.pop_if(|token| !token.begins_line && !token.is("{")) else {
            let bare = Diagnostic::new(word.span, "`import` needs the name of a snippet or file");
            return Err(bare.help("write: import FILE"));
        };
        if let Some(more) = self.peek().filter(|token| !token.begins_line && !token.is("}")) {
            return Err(Diagnostic::new(more.span, "`import` takes one file or pattern")
                .help("write another `import`"));
        }
        self.imports += 1;
        let octets = self.source.text().len();
        if self.imports > MOST_IMPORTS || self.ahead.len() > MOST_TOKENS || octets > MOST_OCTETS {
            return Err(Diagnostic::new(what.span, "this imports too much, maybe itself"));
        }
        let what = self.resolved(what);
        let mut imported = match self.snippets.get(&what.text) {
            Some(body) => body.clone(),
            None => self.files(&what)?,
        };
        // The imported words and those that follow start new lines.
        if let Some(first) = imported.first_mut() {
            first.begins_line = true;
        }
        if let Some(next) = self.ahead.last_mut() {
            next.begins_line = true;
        }
        self.ahead.extend(imported.into_iter().rev());
        Ok(())
    }

    /// The words of the files that an import names.
    fn files(&mut self, what: &Token) -> Read<Vec<Token>> {
        let pattern = self.folder(what.span).join(&what.text);
        let name = pattern
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let (Some(folder), Some(name)) = (pattern.parent(), name) else {
            return Err(Diagnostic::new(what.span, "this is not the name of a file"));
        };
        let paths = match name.split_once('*') {
            None => vec![pattern.clone()],
            Some(_) if what.text.matches('*').count() > 1 || what.text.contains(['?', '[']) => {
                let many = Diagnostic::new(what.span, "only one `*` may be in a pattern");
                return Err(many.help("write several `import` lines"));
            }
            Some((before, after)) => {
                self.files.push(folder.to_owned());
                matching(folder, before, after)
            }
        };
        let mut found = Vec::new();
        for path in paths {
            if !self.files.contains(&path) {
                self.files.push(path.clone());
            }
            let file = read_source(&path).map_err(|report| {
                let why = report.diagnostics()[0].message.clone();
                Diagnostic::new(what.span, why)
            })?;
            let (source, start) = self.source.with(path.display().to_string(), file.text());
            self.source = source;
            let folder = path.parent().unwrap_or(Path::new(""));
            self.folders.push((start, folder.to_owned()));
            found.extend(tokens(file.text(), start));
        }
        Ok(found)
    }

    /// The folder of the file that a span is in.
    fn folder(&self, place: Span) -> &Path {
        let index = self.folders.partition_point(|(start, _)| *start <= place.start);
        &self.folders[index.max(1) - 1].1
    }
}

/// The files in a folder whose names have this start and end, sorted. As in a shell, only a pattern that
/// starts with a dot matches hidden files.
fn matching(folder: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> = names
        .filter(|name| {
            let long_enough = name.len() >= before.len() + after.len();
            let hidden = name.starts_with('.') && !before.starts_with('.');
            long_enough && !hidden && name.starts_with(before) && name.ends_with(after)
        })
        .map(|name| folder.join(name))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

/// The name of a snippet, if these are the keys of one.
fn snippet_name(keys: &[Token]) -> Option<String> {
    match keys {
        [key] => Some(key.text.strip_prefix('(')?.strip_suffix(')')?.to_owned()),
        _ => None,
    }
}

fn unclosed(brace: Span) -> Diagnostic {
    Diagnostic::new(brace, "this brace is never closed").help("close it with `}` on its own line")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in(folder: &Path, text: &str) -> Result<Corefile, String> {
        let source = Source::new("Corefile", text);
        let variable = |name: &str| (name == "PORT").then(|| "5300".to_owned());
        read(source, folder, &variable).map_err(|(source, found)| {
            let (file, part) = source.part(found.span.start);
            let at = &source.text()[part][..0];
            assert_eq!(at, "");
            format!(
                "{}:{} {}",
                file.rsplit('/').next().unwrap_or(file),
                source.line(found.span),
                found.message
            )
        })
    }

    /// The keys, and each plugin with its arguments and options.
    fn shown(corefile: &Corefile) -> Vec<String> {
        let words = |tokens: &[Token]| {
            let words: Vec<&str> = tokens.iter().map(|token| &*token.text).collect();
            words.join(" ")
        };
        let plugin = |plugin: &Plugin| {
            let options: Vec<String> = plugin
                .options
                .iter()
                .map(|option| {
                    format!("{} {}", option.name.text, words(&option.arguments))
                        .trim_end()
                        .to_owned()
                })
                .collect();
            let head = format!("{} {}", plugin.name.text, words(&plugin.arguments));
            match options.is_empty() {
                true => head.trim_end().to_owned(),
                false => format!("{} {{{}}}", head.trim_end(), options.join(";")),
            }
        };
        let block = |block: &Block| {
            let plugins: Vec<String> = block.plugins.iter().map(plugin).collect();
            format!("{} | {}", words(&block.keys), plugins.join(" | "))
        };
        corefile.blocks.iter().map(block).collect()
    }

    #[test]
    fn blocks_are_read() {
        for (text, expected) in [
            (
                ".:53 {\n errors\n cache 30 {\n  success 1 2\n }\n}\n",
                &[".:53 | errors | cache 30 {success 1 2}"][..],
            ),
            ("a, b\n{\n log\n}\nc d {\n}", &["a b | log", "c d | "]),
            ("a,\nb {\n}", &["a b | "]),
            (".:{$PORT} {\n bind {%NONE%}x\n}", &[".:5300 | bind x"]),
            (
                "example.org\nlog\nforward . 192.0.2.1",
                &["example.org | log | forward . 192.0.2.1"],
            ),
            (
                "(s) {\n log\n cache {\n  prefetch 1\n }\n}\n. {\n import s\n errors\n}",
                &[". | log | cache {prefetch 1} | errors"],
            ),
            (". {\n log . \"{name} }\"\n}", &[". | log . {name} }"]),
            ("", &[]),
        ] {
            let corefile = read_in(Path::new("/"), text).unwrap();
            assert_eq!(shown(&corefile), expected, "{text}");
        }
    }

    #[test]
    fn files_are_imported_into_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("custom")).unwrap();
        std::fs::write(at("custom/b.override"), "log\nimport ../more\n").unwrap();
        std::fs::write(at("custom/a.override"), "errors").unwrap();
        std::fs::write(at("custom/.hidden.override"), "x").unwrap();
        std::fs::write(at("more"), "whoami").unwrap();
        std::fs::write(at("custom/x.server"), "a {\n any\n}\n").unwrap();
        let text = ". {\n import custom/*.override\n loop\n}\nimport custom/*.server\nimport custom/*.none";
        let corefile = read_in(folder.path(), text).unwrap();
        assert_eq!(shown(&corefile), [". | errors | log | whoami | loop", "a | any"]);
        assert!(corefile.files.contains(&at("custom")) && corefile.files.contains(&at("custom/../more")));
        for (text, expected) in [
            (". {\n import none\n}", "Corefile:2 "),
            (
                ". {\n import custom/bad\n}",
                "Corefile:1 this brace is never closed",
            ),
            (
                ". {\n import endless\n}",
                "endless:1 this imports too much, maybe itself",
            ),
            (
                ". {\n import a*b*c\n}",
                "Corefile:2 only one `*` may be in a pattern",
            ),
            (
                ". {\n import a b\n}",
                "Corefile:2 `import` takes one file or pattern",
            ),
            (
                ". {\n import\n}",
                "Corefile:2 `import` needs the name of a snippet or file",
            ),
        ] {
            std::fs::write(at("custom/bad"), "log\ncache {\n").unwrap();
            std::fs::write(at("endless"), "import endless\n").unwrap();
            let found = read_in(folder.path(), text).unwrap_err();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }

    #[test]
    fn what_is_not_a_corefile_is_pointed_at() {
        for (text, expected) in [
            (". {\n log\n", "Corefile:1 this brace is never closed"),
            (". {\n cache {\n}\n", "Corefile:1 this brace is never closed"),
            ("}", "Corefile:1 this brace closes nothing"),
            ("{\n}", "Corefile:1 this block has no names"),
            ("a, {\n}", "Corefile:1 another name must follow the comma"),
            (
                ". {\n {\n }\n}",
                "Corefile:2 a plugin must come before this brace",
            ),
            (
                ". {\n cache { prefetch 1 }\n}",
                "Corefile:2 CoreDNS takes this brace for an argument",
            ),
            ("(a) {\n}\n(a) {\n}", "Corefile:3 the snippet a is written twice"),
            ("(a)\nlog", "Corefile:1 a snippet needs braces"),
            (
                "(a) {\n import a\n}\n. {\n import a\n}",
                "Corefile:2 this imports too much, maybe itself",
            ),
        ] {
            assert_eq!(read_in(Path::new("/"), text).unwrap_err(), expected, "{text:?}");
        }
    }
}
