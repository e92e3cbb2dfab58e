//! Builds a searchable site of all documents that README.md leads to, with mdBook. The site has the layout of
//! the repository, so that links are the same in both.
//!
//! A page is below its folder's page, or below the first page that links to it. The rows of README's table
//! are the site's parts. A linked file that is no document is copied, and a linked folder becomes a page that
//! lists its files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{Failure, call, release_folder, root, succeeds};

/// The first page.
const FIRST: &str = "README.md";

const BOOK: &str = "[book]\ntitle = \"dnsweir\"\nlanguage = \"en\"\n\n[output.html]\nno-section-label = true\n\n[output.html.print]\nenable = false\n";

/// Builds the site, and checks its links.
pub fn docs() -> Result<(), Failure> {
    if !succeeds(Command::new("mdbook").arg("--version")) {
        return Err(
            "mdBook is missing: cargo install mdbook --locked --no-default-features --features search".into(),
        );
    }
    let folder = release_folder().with_file_name("docs");
    let _ = fs::remove_dir_all(&folder);
    let site = Site::of(&root())?;
    for (path, text) in &site.texts {
        write(&folder.join("src").join(path), text.as_bytes())?;
    }
    for path in &site.files {
        let bytes = fs::read(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
        write(&folder.join("src").join(path), &bytes)?;
    }
    write(&folder.join("src/SUMMARY.md"), site.summary().as_bytes())?;
    write(&folder.join("book.toml"), BOOK.as_bytes())?;
    call(Command::new("mdbook").arg("build").arg(&folder))?;
    let wrong = broken(&folder.join("book"))?;
    if !wrong.is_empty() {
        return Err(format!(
            "the site has broken links; correct them in the documents:\n{}",
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

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The content of the site. Paths are relative to the root, as mdBook gets them: a folder's README is its
/// `index.md`.
#[derive(Default)]
struct Site {
    /// The text of each page, with the site's links.
    texts: BTreeMap<String, String>,
    /// For each page, the page that it is below; a part's own pages have none.
    below: BTreeMap<String, String>,
    /// The parts' titles, each with its pages.
    parts: Vec<(String, Vec<String>)>,
    /// All pages, in the order of the table of contents.
    order: Vec<String>,
    /// The files to copy.
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

    /// Reads the parts from README's table. Returns the documents that it links to.
    fn read_parts(&mut self, root: &Path, first: &str) -> Vec<String> {
        let table = first.split("\n## Documents\n").nth(1).unwrap_or_default();
        let mut documents = Vec::new();
        for row in table.lines().filter(|line| line.starts_with("| ")) {
            let title = row.split('|').nth(1).unwrap_or_default().trim();
            let title = title.trim_start_matches('[').split(']').next();
            let mut pages = Vec::new();
            for target in links(row) {
                let to = resolve(root, FIRST, &target).and_then(|(path, _)| document(root, &path));
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

    /// Makes a page of a document. Returns the documents that it links to.
    fn read(&mut self, root: &Path, path: &str) -> Result<Vec<String>, Failure> {
        let text = match fs::read_to_string(root.join(path)) {
            Ok(text) => text,
            Err(_) => listing(root, path)?,
        };
        let mut documents = Vec::new();
        let text = relinked(&text, |target| {
            let (to, anchor) = resolve(root, path, target)?;
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

    /// Moves each page of a folder that has a page below that one, instead of below the first page that links
    /// to it.
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
        // Pages of a folder are sorted by their paths; other pages stay in the order of their links.
        self.order.sort_by_key(|page| {
            let folder = self.below.get(page).filter(|above| above.ends_with("/index.md"));
            folder.map(|_| page.clone())
        });
    }

    /// Returns whether a page is below another, at any depth.
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

    /// Returns the table of contents in mdBook's format.
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

    /// Returns the first heading of a page.
    fn title(&self, page: &str) -> String {
        let text = self.texts.get(page).map_or("", String::as_str);
        let heading = text.lines().find_map(|line| line.strip_prefix("# "));
        heading.unwrap_or(page).replace('`', "")
    }
}

/// Returns the page of a document.
fn page_of(path: &str) -> String {
    match path.strip_suffix(FIRST) {
        Some(folder) => format!("{folder}index.md"),
        None => path.to_owned(),
    }
}

/// Returns the document at a path, if it is one. A folder's document is its README, even if there is none.
fn document(root: &Path, path: &str) -> Option<String> {
    if root.join(path).is_dir() {
        return Some(format!("{path}/{FIRST}").trim_start_matches('/').to_owned());
    }
    path.ends_with(".md").then(|| path.to_owned())
}

/// Returns the text of a page for a folder without a README: a list of its files.
fn listing(root: &Path, path: &str) -> Result<String, Failure> {
    let folder = path.trim_end_matches(FIRST).trim_end_matches('/');
    let entries = fs::read_dir(root.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let names: BTreeSet<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.to_owned()))
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    // Subfolders are named without a link: following them would copy the whole repository.
    let rows = names
        .iter()
        .map(|name| match root.join(folder).join(name).is_dir() {
            true => format!("- `{name}/`\n"),
            false => format!("- [`{name}`]({name})\n"),
        });
    Ok(format!("# {folder}\n\n{}", rows.collect::<String>()))
}

/// Resolves a link of a document to a path relative to the repository's root, and the anchor. Returns none
/// for a link to another site, to a place on the same page, or to a missing file.
fn resolve(root: &Path, from: &str, target: &str) -> Option<(String, String)> {
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

/// Returns the relative link from one page to another.
fn between(from: &str, to: &str) -> String {
    "../".repeat(from.matches('/').count()) + to
}

/// Returns the links of a text, except those in code blocks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    relinked(text, |target| {
        links.push(target.to_owned());
        None
    });
    links
}

/// Returns a text with those links replaced for which `other` returns another. Code blocks stay as they are.
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

/// Splits a line at its first link: the text before the link's target, the target, and the rest.
fn link(line: &str) -> Option<(&str, &str, &str)> {
    let begin = line.find("](")? + 2;
    let end = begin + line[begin..].find(')')?;
    Some((&line[..begin], &line[begin..end], &line[end..]))
}

/// Returns the broken links of a built site.
fn broken(book: &Path) -> Result<Vec<String>, Failure> {
    let mut pages = BTreeMap::new();
    collect(book, &mut pages)?;
    let mut wrong = Vec::new();
    // The links of 404.html are relative to the site's address, which is unknown here.
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

/// Collects the pages in a folder and its subfolders, with their text.
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

/// Returns the links of a page that stay on the site.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let all = ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|begin| page.split(begin).skip(1));
    let targets = all.filter_map(|rest| rest.split('"').next());
    targets.filter(|target| !target.contains(':') && !target.starts_with("//") && !target.is_empty())
}

/// Resolves `..` in a path.
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
    fn links_outside_code_blocks_are_replaced() {
        let text = "a [b](c.md#d) and [e](f) [g](https://h)\n```\n[i](j)\n```\n| [k](l.md) |\n";
        assert_eq!(links(text), ["c.md#d", "f", "https://h", "l.md"]);
        let other = |target: &str| (target == "f").then(|| "f/index.md".to_owned());
        assert_eq!(relinked(text, other), text.replace("(f)", "(f/index.md)"));
        assert_eq!(relinked("[open](", |_| None), "[open](");
    }

    #[test]
    fn a_link_resolves_to_a_path_from_the_root() {
        let root = root();
        let to = |from: &str, target: &str| resolve(&root, from, target);
        let expected = |path: &str, anchor: &str| Some((path.to_owned(), anchor.to_owned()));
        assert_eq!(
            to("docs/guide.md", "../README.md#documents"),
            expected(FIRST, "#documents")
        );
        assert_eq!(to("README.md", "docs/decisions/"), expected("docs/decisions", ""));
        assert_eq!(to("README.md", "https://example.org"), None);
        assert_eq!(to("README.md", "#documents"), None);
        assert_eq!(
            document(&root, "docs/decisions").as_deref(),
            Some("docs/decisions/README.md")
        );
        assert_eq!(document(&root, "Cargo.toml"), None);
        assert_eq!(between("docs/a.md", "examples/index.md"), "../examples/index.md");
    }

    /// Every document is listed exactly once.
    #[test]
    fn the_site_has_every_linked_document_once() {
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
    fn broken_links_are_found() {
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
