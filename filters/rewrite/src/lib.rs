//! Rewrites questions and responses: names, types, classes, TTLs, rcodes.
//!
//! Every decision, including edits of the response, depends only on the question, so it is made once and
//! remembered by the host. There is a response phase only if rules change names in the data of answers.

mod answers;
mod index;
mod pattern;
mod rule;

use std::cell::OnceCell;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Answers, Class, Filter, Invalid, Manifest, Name, NameBuf, Query, Rcode, Response, ResponseEdit,
    ResponseVerdict, Rewrite, Setup, Type, Verdict, count,
};

use answers::{OnAnswers, Reworked};
use index::Index;
use rule::{Action, Rule};

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Rewriter {
    rules: Vec<Rule>,
    index: Index,
    /// Whether any rule changes names in the data of answers.
    looks_at_answers: bool,
}

impl Filter for Rewriter {
    fn configure(setup: Setup<'_>) -> Result<(Rewriter, Manifest), Invalid> {
        let config = setup.config();
        let nodes = config.nodes(&["name", "type", "class", "ttl", "rcode", "cname", "target"]);
        if nodes.is_empty() {
            let _ = config
                .mistake("no rules are configured")
                .help("such as: name \"exact\" \"a.test\" \"b.test\"")
                .report();
        }
        let rules: Vec<Rule> = nodes.iter().filter_map(|node| Rule::read(*node).ok()).collect();
        let index = Index::new(&rules);
        let looks_at_answers = rules.iter().any(|rule| rule.action.needs_answers());
        let mut manifest = index.narrow(Manifest::new().queries());
        if looks_at_answers {
            manifest = manifest.responses().messages().asks();
        }
        let filter = Rewriter {
            rules,
            index,
            looks_at_answers,
        };
        Ok((filter, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let course = self.course(query);
        let unchanged = self.looks_at_answers && course.on_answers.is_empty();
        let verdict = course.into_verdict(query).remember(REMEMBER);
        match unchanged {
            true => verdict.skip_response(),
            false => verdict,
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        match self.reworked(response, None) {
            Reworked::Same => ResponseVerdict::pass(),
            Reworked::Asks(ask) => ResponseVerdict::ask(ask),
            Reworked::Edited(edit) => ResponseVerdict::edit(edit),
        }
    }

    /// Receives what the new target of an alias resolves to. If that failed, the answer stays unchanged.
    fn response_answers(&mut self, response: &Response<'_>, answers: &Answers<'_>) -> ResponseVerdict {
        match self.reworked(response, answers.get(0)) {
            Reworked::Edited(edit) => ResponseVerdict::edit(edit),
            Reworked::Same | Reworked::Asks(_) => ResponseVerdict::pass(),
        }
    }
}

/// The question as changed by the rules so far.
struct Question<'q> {
    asked: Name<'q>,
    asked_text: OnceCell<String>,
    /// The new name; `None` if unchanged, which is the common case.
    renamed: Option<NameBuf>,
    renamed_text: OnceCell<String>,
    qtype: Type,
    class: Class,
}

/// The result of applying the rules to a query.
struct Course<'q, 'r> {
    question: Question<'q>,
    edit: Option<ResponseEdit>,
    keep_answers: bool,
    alias: Option<NameBuf>,
    /// Whether a rule produced an invalid name.
    invalid: bool,
    /// Changes to names in the data of its answers, in the order of the rules.
    on_answers: Vec<OnAnswers<'r>>,
}

impl Rewriter {
    fn course<'q, 'r>(&'r self, query: &Query<'q>) -> Course<'q, 'r> {
        let mut course = Course {
            question: Question::new(query.name(), query.qtype(), query.class()),
            edit: None,
            keep_answers: false,
            alias: None,
            invalid: false,
            on_answers: Vec::new(),
        };
        let mut from = 0;
        while let Some((number, rule)) = self.index.next(&self.rules, from, &course.question) {
            course.apply(&rule.action);
            if rule.stop || course.alias.is_some() || course.invalid {
                break;
            }
            from = number + 1;
        }
        course
    }

    /// The changed answer. `found` is what the new target of an alias resolves to, once that has been looked
    /// up.
    fn reworked(&self, response: &Response<'_>, found: Option<dnsweir_filter::Found<'_>>) -> Reworked {
        let course = self.course(response.query());
        if course.on_answers.is_empty() {
            return Reworked::Same;
        }
        match response.read() {
            Ok(message) => answers::rework(response, &message, &course.on_answers, found),
            Err(_) => Reworked::Same,
        }
    }
}

impl<'r> Course<'_, 'r> {
    fn apply(&mut self, action: &'r Action) {
        let now = &mut self.question;
        match action {
            Action::Name {
                pattern,
                replacement,
                keep,
                values,
            } => match pattern.replace(now.name(), replacement) {
                Ok(name) => {
                    now.rename(name);
                    self.keep_answers |= keep;
                    self.on_answers.extend(values.iter().map(OnAnswers::Values));
                }
                Err(_) => self.invalid = true,
            },
            Action::Type { to, .. } => now.qtype = *to,
            Action::Class { to, .. } => now.class = *to,
            Action::Ttl { bounds, .. } => {
                self.edit = Some(bounds.put_into(self.edit.take().unwrap_or_default()));
            }
            Action::Rcode { from, to, .. } => {
                let edit = self.edit.take().unwrap_or_default();
                self.edit = Some(edit.rcode(*from, *to));
            }
            Action::Cname { target, .. } => self.alias = Some(target.clone()),
            Action::Target(change) => self.on_answers.push(OnAnswers::Targets(change)),
        }
    }

    fn into_verdict(self, query: &Query<'_>) -> Verdict {
        if self.invalid {
            // Passing the old name on would answer a question that the rules did not intend.
            count("invalid_names", 1);
            return Verdict::answer(Answer::new(Rcode::SERVFAIL));
        }
        let verdict = match self.alias {
            Some(target) => Verdict::alias(target),
            None => self.question.into_verdict(query, self.keep_answers),
        };
        match self.edit {
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

    /// The text of [`name`](Question::name), computed when first needed.
    fn text(&self) -> &OnceCell<String> {
        match self.renamed {
            Some(_) => &self.renamed_text,
            None => &self.asked_text,
        }
    }

    fn name(&self) -> Name<'_> {
        self.renamed.as_ref().map_or(self.asked, NameBuf::as_name)
    }

    /// A rewrite of what has changed, or a pass if nothing has.
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
