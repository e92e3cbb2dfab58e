//! Deadlines that queries wait for, all on one runtime timer.
//!
//! Nearly every query is answered long before it would be sent again or given up, so nearly every deadline is
//! cancelled. Each of the runtime's own timers then costs a lock twice and, if it would be the next to fire,
//! a system call to wake the thread that waits for events, the very thread that set it. Here a deadline is an
//! entry in a table, and one task waits for the earliest. That task scans the whole table, but only when
//! woken: once per retransmission timeout, not per query.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep_until};

/// One worker's deadlines. At most two per attempt under way.
#[derive(Default)]
pub(super) struct Alarms {
    set: Rc<Set>,
    /// The task that waits for the earliest deadline; none before the first was set.
    task: RefCell<Option<AbortHandle>>,
}

#[derive(Default)]
struct Set {
    /// When to wake which waker; `None` once it was woken.
    waiting: RefCell<Slab<(Instant, Option<Waker>)>>,
    /// When the task wakes up: never after the earliest deadline; before it if an earlier one was cancelled.
    awaited: Cell<Option<Instant>>,
    /// Notified when a deadline before `awaited` is set.
    earlier: Notify,
}

impl Alarms {
    /// Resolves at `at`, or up to two milliseconds later. Must be awaited on a `LocalRuntime`.
    pub fn at(&self, at: Instant) -> Alarm<'_> {
        Alarm {
            alarms: self,
            at,
            key: None,
        }
    }

    /// The output of `awaited` if it is ready by `until`; none otherwise.
    pub async fn within<T>(&self, until: Instant, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = awaited => Some(output),
            () = self.at(until) => None,
        }
    }

    fn set(&self, at: Instant, waker: &Waker) -> usize {
        let key = self.set.waiting.borrow_mut().insert((at, Some(waker.clone())));
        if self.set.awaited.get().is_none_or(|awaited| at < awaited) {
            self.set.awaited.set(Some(at));
            self.set.earlier.notify_one();
            self.task
                .borrow_mut()
                .get_or_insert_with(|| spawn_local(Rc::clone(&self.set).ring()).abort_handle());
        }
        key
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Set {
    /// Wakes every waker at its time.
    async fn ring(self: Rc<Self>) {
        loop {
            let first = self.first();
            self.awaited.set(first);
            let Some(first) = first else {
                self.earlier.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = sleep_until(first) => self.wake(Instant::now()),
                () = self.earlier.notified() => {}
            }
        }
    }

    fn first(&self) -> Option<Instant> {
        let waiting = self.waiting.borrow();
        let set = waiting.iter().filter(|(_, (_, waker))| waker.is_some());
        set.map(|(_, (at, _))| *at).min()
    }

    /// Wakes all that are due, earliest first.
    fn wake(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        let due = waiting.iter_mut().filter(|(_, (at, _))| *at <= now);
        let mut due: Vec<_> = due
            .filter_map(|(_, (at, waker))| Some((*at, waker.take()?)))
            .collect();
        drop(waiting);
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// A deadline to wait for; cancelled when dropped.
pub(super) struct Alarm<'a> {
    alarms: &'a Alarms,
    at: Instant,
    /// Its entry in the table, once it was polled.
    key: Option<usize>,
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(key) = self.key else {
            self.key = Some(self.alarms.set(self.at, context.waker()));
            return Poll::Pending;
        };
        match &mut self.alarms.set.waiting.borrow_mut()[key].1 {
            Some(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.alarms.set.waiting.borrow_mut().remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::fake::run;
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn they_ring_in_order_and_no_earlier() {
        run(async {
            let alarms = Rc::new(Alarms::default());
            let order = Rc::new(RefCell::new(Vec::new()));
            let begin = Instant::now();
            // Later ones are set first; two are for the same moment.
            let waiting: Vec<_> = [40, 20, 30, 20, 10]
                .into_iter()
                .map(|after| {
                    let (alarms, order) = (Rc::clone(&alarms), Rc::clone(&order));
                    spawn_local(async move {
                        alarms.at(begin + Duration::from_millis(after)).await;
                        assert!(begin.elapsed() >= Duration::from_millis(after));
                        order.borrow_mut().push(after);
                    })
                })
                .collect();
            for waiting in waiting {
                waiting.await.unwrap();
            }
            assert_eq!(*order.borrow(), [10, 20, 20, 30, 40]);
            assert!(alarms.set.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn what_is_past_is_over_at_once() {
        run(async {
            let alarms = Alarms::default();
            alarms.at(Instant::now() - SHORT).await;
        });
    }

    #[test]
    fn what_ends_in_time_takes_its_alarm_back() {
        run(async {
            let alarms = Alarms::default();
            assert_eq!(alarms.within(Instant::now() + LONG, async { 7 }).await, Some(7));
            let never = std::future::pending::<()>();
            assert_eq!(alarms.within(Instant::now() + SHORT, never).await, None);
            // A cancelled alarm that was awaited must not hide a later one.
            let mut taken_back = Box::pin(alarms.at(Instant::now() + SHORT));
            assert!(futures_util::poll!(taken_back.as_mut()).is_pending());
            drop(taken_back);
            alarms.at(Instant::now() + SHORT).await;
            assert!(alarms.set.waiting.borrow().is_empty());
        });
    }
}
