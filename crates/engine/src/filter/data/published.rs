//! What a filter's refresh publishes, and what one instance sees of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::output::{NAME, Output, Snapshot};
use crate::config::Data;

/// Names that an instance may ask for.
const NAMES: usize = 64;

/// Octets of all that an instance has asked for, at most.
pub(in crate::filter) const NAME_OCTETS: usize = 2 * NAMES * (size_of::<Other>() + NAME);

/// What is published now, for all instances of a filter.
#[derive(Debug, Default)]
pub(in crate::filter) struct Published {
    revision: AtomicU64,
    now: Mutex<Arc<Snapshot>>,
}

impl Published {
    /// Counts up whenever other data is published.
    #[inline]
    pub(in crate::filter) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// What is published now.
    pub(in crate::filter) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.lock())
    }

    /// Publishes all of this in the place of what was.
    pub(in crate::filter) fn publish(&self, snapshot: Snapshot) {
        let mut now = self.now.lock();
        *now = Arc::new(snapshot);
        self.revision.fetch_add(1, Ordering::Release);
    }

    fn take(&self) -> (u64, Arc<Snapshot>) {
        let now = self.now.lock();
        (self.revision.load(Ordering::Acquire), Arc::clone(&now))
    }
}

/// What one instance sees of data: during a call, always the same.
pub(in crate::filter) struct DataView {
    /// What its configuration names.
    configured: Arc<[Arc<Data>]>,
    /// Behind that, by index.
    others: Vec<Other>,
    published: Arc<Published>,
    revision: u64,
    snapshot: Arc<Snapshot>,
    /// What is being made; none: this is no refresh.
    pub(super) output: Option<Output>,
}

enum Other {
    /// Whatever is published under a name.
    Published(String),
    /// A source of the refresh under way.
    Source(Arc<Data>),
}

impl DataView {
    pub(in crate::filter) fn new(configured: Arc<[Arc<Data>]>, published: Arc<Published>) -> DataView {
        let (revision, snapshot) = published.take();
        DataView {
            configured,
            others: Vec::new(),
            published,
            revision,
            snapshot,
            output: None,
        }
    }

    /// Sees what is published now, until this is called again.
    #[inline]
    pub(in crate::filter) fn renew(&mut self) {
        if self.published.revision() != self.revision {
            (self.revision, self.snapshot) = self.published.take();
        }
    }

    /// Adds a source, and gives its index.
    pub(in crate::filter) fn add_source(&mut self, source: Arc<Data>) -> u32 {
        self.add(Other::Source(source))
    }

    /// From now on up to so many octets can be written.
    pub(in crate::filter) fn begin_output(&mut self, limit: usize) {
        self.output = Some(Output::new(limit));
    }

    /// What was written.
    pub(in crate::filter) fn take_output(&mut self) -> Option<Output> {
        self.output.take()
    }

    /// The data with this index.
    pub(super) fn get(&self, index: u32) -> Option<&Arc<Data>> {
        let index = index as usize;
        match self.configured.get(index) {
            Some(data) => Some(data),
            None => match self.others.get(index - self.configured.len())? {
                Other::Published(name) => self.snapshot.get(name),
                Other::Source(data) => Some(data),
            },
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The index of what is published under this name. Names that nothing can be published under have none.
    pub(super) fn published(&mut self, name: &str) -> u32 {
        if name.len() > NAME {
            return u32::MAX;
        }
        let named = |other: &Other| matches!(other, Other::Published(known) if known == name);
        match self.others.iter().position(named) {
            Some(known) => (self.configured.len() + known) as u32,
            None if self.others.len() < NAMES => self.add(Other::Published(name.to_owned())),
            None => u32::MAX,
        }
    }

    fn add(&mut self, other: Other) -> u32 {
        self.others.push(other);
        (self.configured.len() + self.others.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(octets: &[u8]) -> Arc<Data> {
        let mut writer = crate::config::DataWriter::new().unwrap();
        writer.append(octets).unwrap();
        writer.finish().unwrap()
    }

    fn seen(view: &DataView, index: u32) -> Option<&[u8]> {
        view.get(index).map(|data| &data[..])
    }

    #[test]
    fn a_view_changes_only_when_it_is_renewed() {
        let published = Arc::<Published>::default();
        let mut view = DataView::new([data(b"fixed")].into(), Arc::clone(&published));
        let (one, two) = (view.published("one"), view.published("two"));
        assert_eq!((one, two, view.published("one")), (1, 2, 1));
        assert_eq!((seen(&view, 0), seen(&view, one)), (Some(&b"fixed"[..]), None));
        published.publish([("one".to_owned(), data(b"a")), ("two".to_owned(), data(b"b"))].into());
        assert_eq!((view.revision(), seen(&view, one)), (0, None));
        view.renew();
        assert_eq!(view.revision(), 1);
        assert_eq!(
            (seen(&view, one), seen(&view, two)),
            (Some(&b"a"[..]), Some(&b"b"[..]))
        );
        published.publish([("two".to_owned(), data(b"c"))].into());
        assert_eq!(seen(&view, one), Some(&b"a"[..]));
        view.renew();
        assert_eq!((seen(&view, one), seen(&view, two)), (None, Some(&b"c"[..])));
        assert_eq!(seen(&view, 3), None);
        assert_eq!(seen(&view, u32::MAX), None);
    }

    /// 64 names of a megabyte each were kept in each instance.
    #[test]
    fn names_that_nothing_can_be_published_under_are_not_kept() {
        let mut view = DataView::new([].into(), Arc::default());
        assert_eq!(view.published(&"x".repeat(NAME + 1)), u32::MAX);
        assert!(view.others.is_empty());
        for number in 0..NAMES {
            assert_eq!(view.published(&format!("{number:0NAME$}")), number as u32);
        }
        let names = view.others.iter().map(|other| match other {
            Other::Published(name) => name.capacity(),
            Other::Source(_) => 0,
        });
        let octets = names.sum::<usize>() + view.others.capacity() * size_of::<Other>();
        assert!(octets <= NAME_OCTETS, "{octets}");
    }

    #[test]
    fn names_are_bounded() {
        let mut view = DataView::new([].into(), Arc::default());
        for number in 0..NAMES {
            assert_eq!(view.published(&number.to_string()), number as u32);
        }
        assert_eq!(view.published("more"), u32::MAX);
        assert_eq!(view.others.len(), NAMES);
        assert_eq!(view.published("7"), 7);
    }
}
