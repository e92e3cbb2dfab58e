//! The data that a filter's refresh publishes, and one instance's view of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::output::{NAME, Output, Snapshot};
use crate::config::Data;

/// Maximum names that an instance may look up.
const NAMES: usize = 64;

/// Maximum bytes kept for the names that an instance has looked up.
pub(in crate::filter) const NAME_OCTETS: usize = 2 * NAMES * (size_of::<Other>() + NAME);

/// The data published now, shared by all instances of a filter.
#[derive(Debug, Default)]
pub(in crate::filter) struct Published {
    revision: AtomicU64,
    now: Mutex<Arc<Snapshot>>,
}

impl Published {
    /// Incremented with every publication.
    #[inline]
    pub(in crate::filter) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The data published now.
    pub(in crate::filter) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.lock())
    }

    /// Publishes this data, replacing all earlier data.
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

/// One instance's view of data, which does not change during a call.
pub(in crate::filter) struct DataView {
    /// The data named in its configuration.
    configured: Arc<[Arc<Data>]>,
    /// Other data, whose indices follow those.
    others: Vec<Other>,
    published: Arc<Published>,
    revision: u64,
    snapshot: Arc<Snapshot>,
    /// The data being written; none: this is not a refresh.
    pub(super) output: Option<Output>,
}

enum Other {
    /// The data published under a name.
    Published(String),
    /// A source of the current refresh.
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

    /// Switches to the data published now.
    #[inline]
    pub(in crate::filter) fn renew(&mut self) {
        if self.published.revision() != self.revision {
            (self.revision, self.snapshot) = self.published.take();
        }
    }

    /// Adds a source and returns its index.
    pub(in crate::filter) fn add_source(&mut self, source: Arc<Data>) -> u32 {
        self.add(Other::Source(source))
    }

    /// Starts output of at most `limit` bytes.
    pub(in crate::filter) fn begin_output(&mut self, limit: usize) {
        self.output = Some(Output::new(limit));
    }

    /// Takes the output.
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

    /// The index of the data published under this name; `u32::MAX` if the name is too long or there are too
    /// many.
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

    /// Instances kept 64 names of a megabyte each.
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
