//! Bytes as an upstream's message and as filters' verdicts on its way back, for the fuzz target.

use std::sync::Arc;

use super::request_pass::rewritten;
use super::response::Response;
use crate::dns::Origin;
use crate::dns::edns::Opt;
use crate::dns::records::Answer;
use crate::dns::reply::Head;
use crate::dns::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, name, u16_at};
use crate::filter::{self, Decision, Outcome, Verdict};

/// Takes a message back through verdicts: the first byte says how many of the others are verdicts, the rest
/// is the message. Whatever the verdicts do, clients get readable messages that fit, and the cache gets
/// readable ones.
pub fn response_path(octets: &[u8]) {
    let Some((&split, rest)) = octets.split_first() else {
        return;
    };
    let (verdicts, message) = rest.split_at(usize::from(split).min(rest.len()));
    let Ok(answer) = Answer::read(message.to_vec()) else {
        return;
    };
    if u16_at(&answer.message, 4) != 1 {
        return;
    }
    let Ok(end) = name::skip_plain(&answer.message, HEADER) else {
        return;
    };
    let mut question = answer.message[HEADER..end + QUESTION_TAIL].to_vec();
    let mut response = Response::answer(Arc::new(answer), Origin::Upstream, false);
    check(&response, &question);
    for outcome in filter::check_octets(verdicts) {
        if let Outcome::Decided(verdict) = outcome {
            apply(&verdict, &mut response, &mut question);
            check(&response, &question);
        }
    }
}

/// Applies a verdict on a query or response, as a pipeline does on the way out.
fn apply(verdict: &Verdict, response: &mut Response, question: &mut Vec<u8>) {
    match &verdict.decision {
        Decision::Rewrite(rewrite) => {
            let above = rewritten(question, rewrite);
            response.rename(question, &above, rewrite.revert);
            *question = above;
        }
        Decision::Answer(records) => *response = Response::from_filter(question, records),
        Decision::Refuse(refusal) => *response = Response::refused(question, refusal),
        Decision::Pass | Decision::Alias(_) | Decision::Ask(_) | Decision::Drop(_) => {}
    }
    if let Some(edit) = &verdict.edit {
        response.edit_as(edit, question, true, || MESSAGE_MAXIMUM, |_| {});
    }
}

fn check(response: &Response, question: &[u8]) {
    if let Some(kept) = response.to_answer() {
        assert!(
            Answer::read(kept.into_owned().message).is_ok(),
            "what is kept can be read"
        );
    }
    let mut out = vec![0; MESSAGE_MAXIMUM];
    for limit in [512, 1232, MESSAGE_MAXIMUM] {
        let opt = Opt {
            error: response.error,
            ..Opt::default()
        };
        let head = Head {
            id: 1,
            flags: 0,
            question,
            opt: Some(opt),
            limit,
        };
        let length = response.write(&mut out, &head);
        assert!(length <= limit, "it fits");
        assert!(
            out[HEADER..].starts_with(question),
            "the question comes back as it was"
        );
        assert!(
            Answer::read(out[..length].to_vec()).is_ok(),
            "what is sent can be read"
        );
    }
}
