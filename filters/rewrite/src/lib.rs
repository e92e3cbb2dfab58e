//! Changes what is asked, and what comes back: names, types, classes, TTLs, response codes.
//!
//! Every decision depends on the question alone, edits of the response included, so each is made once
//! and remembered by the host. There is no response phase.

mod index;
mod pattern;
mod rule;

use std::cell::OnceCell;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, Invalid, Manifest, Name, NameBuf, Query, Rcode, ResponseEdit, Rewrite, Setup,
    Type, Verdict, count,
};

use index::Index;
use rule::{Action, Rule};

/// How long the host may go without asking again. Not forever, so that its memory of names that
/// nobody asks for any more has an end.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Rewriter {
    rules: Vec<Rule>,
    index: Index,
}

impl Filter for Rewriter {
    fn configure(setup: Setup<'_>) -> Result<(Rewriter, Manifest), Invalid> {
        let config = setup.config();
        let nodes = config.nodes(&["name", "type", "class", "ttl", "rcode", "cname"]);
        if nodes.is_empty() {
            let _ = config
                .mistake("no rules are configured")
                .help("such as: name \"exact\" \"a.test\" \"b.test\"")
                .report();
        }
        let rules: Vec<Rule> = nodes.iter().filter_map(|node| Rule::read(*node).ok()).collect();
        let index = Index::new(&rules);
        let manifest = index.narrow(Manifest::new().queries());
        Ok((Rewriter { rules, index }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        self.decide(query).remember(REMEMBER)
    }
}

/// The question as the rules so far have left it.
struct Question<'q> {
    asked: Name<'q>,
    asked_text: OnceCell<String>,
    /// None: as it was asked. Nearly always.
    renamed: Option<NameBuf>,
    renamed_text: OnceCell<String>,
    qtype: Type,
    class: Class,
}

impl Rewriter {
    fn decide(&self, query: &Query<'_>) -> Verdict {
        let mut now = Question::new(query.name(), query.qtype(), query.class());
        let mut edit = None;
        let mut keep_answers = false;
        let mut alias = None;
        let mut from = 0;
        while let Some((number, rule)) = self.index.next(&self.rules, from, &now) {
            match &rule.action {
                Action::Name {
                    pattern,
                    replacement,
                    keep,
                } => match pattern.replace(now.name(), replacement) {
                    Ok(name) => {
                        now.rename(name);
                        keep_answers |= keep;
                    }
                    Err(_) => {
                        // Passing the old name on would answer a question nobody meant to be asked.
                        count("invalid_names", 1);
                        return Verdict::answer(Answer::new(Rcode::SERVFAIL));
                    }
                },
                Action::Type { to, .. } => now.qtype = *to,
                Action::Class { to, .. } => now.class = *to,
                Action::Ttl { bounds, .. } => edit = Some(bounds.put_into(edit.unwrap_or_default())),
                Action::Rcode { from, to, .. } => {
                    edit = Some(edit.unwrap_or_else(ResponseEdit::new).rcode(*from, *to));
                }
                Action::Cname { target, .. } => {
                    alias = Some(target.clone());
                    break;
                }
            }
            if rule.stop {
                break;
            }
            from = number + 1;
        }
        let verdict = match alias {
            Some(target) => Verdict::alias(target),
            None => now.into_verdict(query, keep_answers),
        };
        match edit {
            Some(edit) => verdict.edit(edit),
            None => verdict,
        }
    }
}

impl<'q> Question<'q> {
    fn new(asked: Name<'q>, qtype: Type, class: Class) -> Question<'q> {
        Question {
            asked,
            asked_text: OnceCell::new(),
            renamed: None,
            renamed_text: OnceCell::new(),
            qtype,
            class,
        }
    }

    fn rename(&mut self, name: NameBuf) {
        self.renamed = Some(name);
        self.renamed_text = OnceCell::new();
    }

    /// The text of [`name`](Question::name), once something has needed it.
    fn text(&self) -> &OnceCell<String> {
        match self.renamed {
            Some(_) => &self.renamed_text,
            None => &self.asked_text,
        }
    }

    fn name(&self) -> Name<'_> {
        self.renamed.as_ref().map_or(self.asked, NameBuf::as_name)
    }

    /// A rewrite to what is different; a pass if nothing is.
    fn into_verdict(self, query: &Query<'_>, keep_answers: bool) -> Verdict {
        let mut rewrite = Rewrite::new();
        if let Some(name) = self.renamed.filter(|name| *name != query.name()) {
            rewrite = rewrite.name(name);
        }
        if self.qtype != query.qtype() {
            rewrite = rewrite.qtype(self.qtype);
        }
        if self.class != query.class() {
            rewrite = rewrite.class(self.class);
        }
        if rewrite == Rewrite::new() {
            return Verdict::pass();
        }
        Verdict::rewrite(if keep_answers {
            rewrite.keep_answers()
        } else {
            rewrite
        })
    }
}

dnsweir_filter::export!(Rewriter);
