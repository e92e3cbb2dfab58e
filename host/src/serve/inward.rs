//! The way in: queries through the filters above the stage that will answer them.

use std::sync::Arc;

use crate::config::OnError;
use crate::dns::{QUESTION_TAIL, rcode};
use crate::filter::{Decision, Outcome, Verdict};

use super::generation::{Live, Stage};
use super::transit::{Change, ChangeKind, Transit};
use super::{Scratch, Step, Worker, story, unix_milliseconds};

impl Worker {
    /// Takes queries on through their filters until each has come to something else, or been decided.
    pub(super) fn advance(&self, live: &Live, transits: &mut [Transit], steps: &mut [Step]) {
        let mut scratch = self.scratch.borrow_mut();
        let Scratch {
            waiting,
            queries,
            verdicts,
            ..
        } = &mut *scratch;
        waiting.resize_with(live.instances.len(), Vec::new);
        let mut unix_ms = None;
        loop {
            let mut asked = false;
            for (index, (transit, step)) in transits.iter_mut().zip(steps.iter_mut()).enumerate() {
                let stages = &live.generation.pipelines[transit.pipeline].stages;
                while matches!(step, Step::Passing) {
                    let Some(&Stage::Filter { filter, zone_base }) = stages.get(transit.stage) else {
                        *step = Step::Arrived;
                        break;
                    };
                    let interest = live.generation.filters[filter].interest();
                    if interest.queries {
                        let now = *unix_ms.get_or_insert_with(unix_milliseconds);
                        let zone = (zone_base + transit.zone) as u16;
                        let mut instance = live.instances[filter].borrow_mut();
                        // What is remembered was of interest when it was asked.
                        if let Some(recalled) = instance.recall(&transit.memo_key(zone), now) {
                            transit.tell(|| story::remembered(live, transit, filter, recalled.verdict));
                            if recalled.passes {
                                transit.stage += 1;
                            } else {
                                self.apply(transit, step, recalled.verdict);
                            }
                            continue;
                        }
                        if interest.covers(transit.qtype, transit.name.as_bytes()) {
                            waiting[filter].push(index);
                            asked = true;
                            break;
                        }
                    }
                    transit.tell(|| story::unasked(live, transit, filter));
                    transit.stage += 1;
                }
            }
            if !asked {
                break;
            }
            let now = *unix_ms.get_or_insert_with(unix_milliseconds);
            for (filter, waiting) in waiting
                .iter_mut()
                .enumerate()
                .filter(|(_, waiting)| !waiting.is_empty())
            {
                queries.clear();
                for &index in waiting.iter() {
                    let transit = &transits[index];
                    queries.push_query(live.query_record(transit), transit.name.as_bytes(), transit.hash);
                }
                let begun = self.begun();
                live.instances[filter]
                    .borrow_mut()
                    .queries(now, queries, verdicts);
                let took = begun.map(|begun| begun.elapsed());
                for (index, verdict) in waiting.drain(..).zip(verdicts.drain(..)) {
                    let (transit, step) = (&mut transits[index], &mut steps[index]);
                    transit.tell(|| story::decided(live, transit, filter, &verdict, took));
                    match verdict {
                        Outcome::Passed => transit.stage += 1,
                        Outcome::Decided(verdict) => self.apply(transit, step, &verdict),
                        Outcome::Failed => match live.generation.config.filters[filter].on_error {
                            OnError::Bypass => transit.stage += 1,
                            OnError::Servfail => *step = Step::Failed(rcode::SERVFAIL),
                            OnError::Refuse => *step = Step::Failed(rcode::REFUSED),
                        },
                    }
                }
            }
        }
        // Only a pass over filters that were looked at read the clock.
        if unix_ms.is_some() {
            for instance in &live.instances {
                instance.borrow_mut().settle();
            }
        }
    }

    /// Does to a query what a filter decided.
    fn apply(&self, transit: &mut Transit, step: &mut Step, verdict: &Arc<Verdict>) {
        let stage = transit.stage;
        if matches!(verdict.decision, Decision::Pass | Decision::Rewrite(_)) {
            if let Some(edit) = &verdict.edit {
                transit.changes.push(Change {
                    stage,
                    what: ChangeKind::Edit(edit.clone()),
                });
            }
            if verdict.skip_response {
                transit.changes.push(Change {
                    stage,
                    what: ChangeKind::SkipResponse,
                });
            }
        }
        match &verdict.decision {
            Decision::Pass => transit.stage += 1,
            // A signed query is relayed as it is or not at all (RFC 5625 section 4.5): to relay it under the name that
            // the filter did not want would make a signature, which nobody here can check, the way around a policy.
            Decision::Rewrite(_) if transit.signed.is_some() => *step = Step::Failed(rcode::REFUSED),
            Decision::Rewrite(rewrite) => {
                let tail = transit.question.len() - QUESTION_TAIL;
                let name = rewrite.name.as_deref().unwrap_or(&transit.question[..tail]);
                let mut question = name.to_vec();
                transit.name.set_lowercased(name);
                transit.qtype = rewrite.qtype.unwrap_or(transit.qtype);
                transit.qclass = rewrite.qclass.unwrap_or(transit.qclass);
                question.extend(transit.qtype.to_be_bytes());
                question.extend(transit.qclass.to_be_bytes());
                transit.hash =
                    self.shared
                        .hasher
                        .question(transit.name.as_bytes(), transit.qtype, transit.qclass);
                let question = std::mem::replace(&mut transit.question, question);
                let what = ChangeKind::Renamed {
                    question,
                    revert: rewrite.revert,
                };
                transit.changes.push(Change { stage, what });
                transit.stage += 1;
            }
            Decision::Answer(_) | Decision::Alias(_) | Decision::Refuse(_) | Decision::Drop => {
                *step = Step::Decided(Arc::clone(verdict));
            }
        }
    }
}
