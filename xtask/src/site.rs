//! The documents as a site with a search: what README.md leads to, laid out as in the repository, so that the same links hold in both.
//!
//! mdBook makes it. A page is below that of its folder, or else the first one that leads to it; the parts are the rows of README's table. What a page leads to
//! and is no document is copied as it is, and a folder becomes a page with its files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{Failure, answers, call, release_folder, root};

/// Where a reader begins.
const FIRST: &str = "README.md";

const BOOK: &str = "[book]\ntitle = \"dnsweir\"\nlanguage = \"en\"\n\n[output.html]\nno-section-label = true\n\n[output.html.print]\nenable = false\n";

/// Makes the site and looks whether its links lead somewhere.
pub fn docs() -> Result<(), Failure> {
    if !answers(Command::new("mdbook").arg("--version")) {
        return Err(
            "this needs mdBook: cargo install mdbook --locked --no-default-features --features search".into(),
        );
    }
    let folder = release_folder().with_file_name("docs");
    let _ = fs::remove_dir_all(&folder);
    let site = Site::of(&root())?;
    for (path, text) in &site.texts {
        write(&folder.join("src").join(path), text.as_bytes())?;
    }
    for path in &site.files {
        let octets = fs::read(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
        write(&folder.join("src").join(path), &octets)?;
    }
    write(&folder.join("src/SUMMARY.md"), site.summary().as_bytes())?;
    write(&folder.join("book.toml"), BOOK.as_bytes())?;
    call(Command::new("mdbook").arg("build").arg(&folder))?;
    let wrong = broken(&folder.join("book"))?;
    if !wrong.is_empty() {
        return Err(format!(
            "links of the site that lead nowhere:\n{}",
            wrong.join("\n")
        ));
    }
    println!(
        "{} pages: {}",
        site.texts.len(),
        folder.join("book/index.html").display()
    );
    Ok(())
}

fn write(path: &Path, octets: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, octets))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// What it is made of. Paths are from the root, as mdBook gets them: a README is the index of its folder.
#[derive(Default)]
struct Site {
    /// The pages' text, with links as they are there.
    texts: BTreeMap<String, String>,
    /// The page that each is below; of those without one, the part.
    below: BTreeMap<String, String>,
    parts: Vec<(String, Vec<String>)>,
    /// In the order in which they were found.
    order: Vec<String>,
    /// What is copied.
    files: BTreeSet<String>,
}

impl Site {
    fn of(root: &Path) -> Result<Site, Failure> {
        let mut site = Site::default();
        let first = fs::read_to_string(root.join(FIRST)).map_err(|error| format!("{FIRST}: {error}"))?;
        site.order.push(page_of(FIRST));
        let mut waiting = VecDeque::from([FIRST.to_owned()]);
        waiting.extend(site.read_parts(root, &first));
        while let Some(path) = waiting.pop_front() {
            let page = page_of(&path);
            for document in site.read(root, &path)? {
                let below = page_of(&document);
                if !site.order.contains(&below) {
                    site.order.push(below.clone());
                    site.below.insert(below, page.clone());
                    waiting.push_back(document);
                }
            }
        }
        site.gather();
        Ok(site)
    }

    /// Makes the parts of README's table; what documents it names.
    fn read_parts(&mut self, root: &Path, first: &str) -> Vec<String> {
        let table = first.split("\n## Documents\n").nth(1).unwrap_or_default();
        let mut documents = Vec::new();
        for row in table.lines().filter(|line| line.starts_with("| ")) {
            let title = row.split('|').nth(1).unwrap_or_default().trim();
            let title = title.trim_start_matches('[').split(']').next();
            let mut pages = Vec::new();
            for target in links(row) {
                let to = leads(root, FIRST, &target).and_then(|(path, _)| document(root, &path));
                if let Some(document) = to
                    && !self.order.contains(&page_of(&document))
                {
                    pages.push(page_of(&document));
                    self.order.push(page_of(&document));
                    documents.push(document);
                }
            }
            if !pages.is_empty() {
                self.parts.push((title.unwrap_or_default().to_owned(), pages));
            }
        }
        documents
    }

    /// Makes a page of a document; what documents it leads to.
    fn read(&mut self, root: &Path, path: &str) -> Result<Vec<String>, Failure> {
        let text = match fs::read_to_string(root.join(path)) {
            Ok(text) => text,
            Err(_) => listing(root, path)?,
        };
        let mut documents = Vec::new();
        let text = relinked(&text, |target| {
            let (to, anchor) = leads(root, path, target)?;
            let Some(document) = document(root, &to) else {
                self.files.insert(to);
                return None;
            };
            let way = between(path, &page_of(&document)) + &anchor;
            documents.push(document);
            Some(way)
        });
        self.texts.insert(page_of(path), text);
        Ok(documents)
    }

    /// Puts what is in a folder that has a page of its own below that page, and not where it was first found.
    fn gather(&mut self) {
        for page in self.order.clone() {
            let folders = page.trim_end_matches("/index.md").match_indices('/').rev();
            let pages = folders.map(|(end, _)| format!("{}/index.md", &page[..end]));
            let found = pages.into_iter().find(|folder| self.texts.contains_key(folder));
            let (Some(folder), Some(above)) = (found, self.below.get(&page).cloned()) else {
                continue;
            };
            if self.is_below(&folder, &page) {
                self.below.insert(folder.clone(), above);
            }
            self.below.insert(page, folder);
        }
        // In a folder, as its files are sorted; elsewhere, as they are named.
        self.order.sort_by_key(|page| {
            let folder = self.below.get(page).filter(|above| above.ends_with("/index.md"));
            folder.map(|_| page.clone())
        });
    }

    /// Whether a page is below another, however far.
    fn is_below(&self, page: &str, other: &str) -> bool {
        let mut above = self.below.get(page);
        while let Some(next) = above {
            if next == other {
                return true;
            }
            above = self.below.get(next);
        }
        false
    }

    /// The table of contents, as mdBook reads it.
    fn summary(&self) -> String {
        let mut summary = String::from("# Summary\n\n");
        let first = page_of(FIRST);
        summary += &format!("[{}]({first})\n", self.title(&first));
        for (part, pages) in &self.parts {
            summary += &format!("\n# {part}\n\n");
            for page in pages {
                self.list(page, 0, &mut summary);
            }
        }
        summary += "\n# More\n\n";
        for page in self.children(&first) {
            self.list(page, 0, &mut summary);
        }
        summary
    }

    fn list(&self, page: &str, depth: usize, summary: &mut String) {
        *summary += &format!("{}- [{}]({page})\n", "  ".repeat(depth), self.title(page));
        for below in self.children(page) {
            self.list(below, depth + 1, summary);
        }
    }

    fn children<'s>(&'s self, page: &'s str) -> impl Iterator<Item = &'s String> {
        let is_below = move |other: &&String| self.below.get(*other).is_some_and(|above| above == page);
        self.order.iter().filter(is_below)
    }

    /// Its first heading.
    fn title(&self, page: &str) -> String {
        let text = self.texts.get(page).map_or("", String::as_str);
        let heading = text.lines().find_map(|line| line.strip_prefix("# "));
        heading.unwrap_or(page).replace('`', "")
    }
}

/// What mdBook gets in the place of a document.
fn page_of(path: &str) -> String {
    match path.strip_suffix(FIRST) {
        Some(folder) => format!("{folder}index.md"),
        None => path.to_owned(),
    }
}

/// The document that a path is: a folder's is its README, whether or not there is one.
fn document(root: &Path, path: &str) -> Option<String> {
    if root.join(path).is_dir() {
        return Some(format!("{path}/{FIRST}").trim_start_matches('/').to_owned());
    }
    path.ends_with(".md").then(|| path.to_owned())
}

/// A page for a folder that has none: its files.
fn listing(root: &Path, path: &str) -> Result<String, Failure> {
    let folder = path.trim_end_matches(FIRST).trim_end_matches('/');
    let entries = fs::read_dir(root.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let names: BTreeSet<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.to_owned()))
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    // Not what is in its folders: that would be the whole repository.
    let rows = names
        .iter()
        .map(|name| match root.join(folder).join(name).is_dir() {
            true => format!("- `{name}/`\n"),
            false => format!("- [`{name}`]({name})\n"),
        });
    Ok(format!("# {folder}\n\n{}", rows.collect::<String>()))
}

/// Where a link of a document leads in the repository: a path from its root, and what is behind it; none: elsewhere.
fn leads(root: &Path, from: &str, target: &str) -> Option<(String, String)> {
    let (path, anchor) = target
        .split_once('#')
        .map_or((target, String::new()), |(path, anchor)| {
            (path, format!("#{anchor}"))
        });
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    root.join(&path).exists().then_some((path, anchor))
}

/// The way from one document to another.
fn between(from: &str, to: &str) -> String {
    "../".repeat(from.matches('/').count()) + to
}

/// The links of a text that are not in a fence.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    relinked(text, |target| {
        links.push(target.to_owned());
        None
    });
    links
}

/// A text with other links, where there are others: what is in a fence stays.
fn relinked(text: &str, mut other: impl FnMut(&str) -> Option<String>) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let mut rest = line;
        let is_prose = !fenced && !fence;
        while let Some((before, target, after)) = link(rest).filter(|_| is_prose) {
            whole += before;
            whole += other(target).as_deref().unwrap_or(target);
            rest = after;
        }
        whole += rest;
    }
    whole
}

/// What stands before the target of the first link of a line, the target, and the rest.
fn link(line: &str) -> Option<(&str, &str, &str)> {
    let begin = line.find("](")? + 2;
    let end = begin + line[begin..].find(')')?;
    Some((&line[..begin], &line[begin..end], &line[end..]))
}

/// Links of a built site that lead nowhere.
fn broken(book: &Path) -> Result<Vec<String>, Failure> {
    let mut pages = BTreeMap::new();
    collect(book, &mut pages)?;
    let mut wrong = Vec::new();
    // Its own links begin at the site's address, wherever that is.
    for (path, text) in pages.iter().filter(|(path, _)| !path.ends_with("404.html")) {
        for target in targets(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = file.split('?').next().unwrap_or_default();
            let to = match file {
                "" => path.clone(),
                file => plain(&path.with_file_name("").join(file)),
            };
            let named = || {
                pages
                    .get(&to)
                    .is_none_or(|page| page.contains(&format!("id=\"{anchor}\"")))
            };
            if !to.exists() || !anchor.is_empty() && !named() {
                wrong.push(format!(
                    "{}: {target}",
                    path.strip_prefix(book).unwrap_or(path).display()
                ));
            }
        }
    }
    Ok(wrong)
}

/// The pages of a folder and those below, with their text.
fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<(), Failure> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// What a page leads to on the same site.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let all = ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|begin| page.split(begin).skip(1));
    let targets = all.filter_map(|rest| rest.split('"').next());
    targets.filter(|target| !target.contains(':') && !target.starts_with("//") && !target.is_empty())
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_fences_are_rewritten() {
        let text = "a [b](c.md#d) and [e](f) [g](https://h)\n```\n[i](j)\n```\n| [k](l.md) |\n";
        assert_eq!(links(text), ["c.md#d", "f", "https://h", "l.md"]);
        let other = |target: &str| (target == "f").then(|| "f/index.md".to_owned());
        assert_eq!(relinked(text, other), text.replace("(f)", "(f/index.md)"));
        assert_eq!(relinked("[open](", |_| None), "[open](");
    }

    #[test]
    fn a_link_leads_to_a_path_from_the_root() {
        let root = root();
        let lead = |from: &str, target: &str| leads(&root, from, target);
        let expected = |path: &str, anchor: &str| Some((path.to_owned(), anchor.to_owned()));
        assert_eq!(
            lead("docs/guide.md", "../README.md#documents"),
            expected(FIRST, "#documents")
        );
        assert_eq!(
            lead("README.md", "docs/decisions/"),
            expected("docs/decisions", "")
        );
        assert_eq!(lead("README.md", "https://example.org"), None);
        assert_eq!(lead("README.md", "#documents"), None);
        assert_eq!(
            document(&root, "docs/decisions").as_deref(),
            Some("docs/decisions/README.md")
        );
        assert_eq!(document(&root, "Cargo.toml"), None);
        assert_eq!(between("docs/a.md", "examples/index.md"), "../examples/index.md");
    }

    /// Every document is a page once, below another or in a part.
    #[test]
    fn the_site_has_every_document_that_readme_leads_to() {
        let site = Site::of(&root()).unwrap();
        let summary = site.summary();
        for page in site.texts.keys() {
            assert_eq!(summary.matches(&format!("]({page})")).count(), 1, "{page}");
        }
        for page in [
            "index.md",
            "docs/guide.md",
            "docs/platforms/index.md",
            "docs/reference/metrics.md",
            "deploy/monitoring/index.md",
        ] {
            assert!(site.texts.contains_key(page), "{page}");
        }
        assert!(site.files.contains("docs/pictures/status.png"));
        assert_eq!(site.below["examples/tenants/index.md"], "examples/index.md");
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let folder = std::env::temp_dir().join(format!("dnsweir-site-{}", std::process::id()));
        write(
            &folder.join("a/index.html"),
            b"<a href=\"../b.html#c\"> <a href=\"../b.html#d\"> <a href=\"e.html\"> <a href=\"https://f\">",
        )
        .unwrap();
        write(
            &folder.join("b.html"),
            b"<h2 id=\"c\"> <img src=\"a/index.html\">",
        )
        .unwrap();
        let wrong = broken(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            wrong.unwrap(),
            ["a/index.html: ../b.html#d", "a/index.html: e.html"]
        );
    }
}
