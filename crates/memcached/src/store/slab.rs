//! Memory of a store: pages of 64 KiB, each cut into chunks of one size class, and what is known of each chunk.
//!
//! An item is a chain of chunks: as many of the largest class as it fills, and one of the smallest class that has room for the rest. So only the
//! last chunk has room to spare. What is known of an item ([`Meta`]) stands beside the page, not in the chunk: 48 bytes, typed.
//!
//! A chunk is named by a number ([`Id`]): page, and place in it. A page that becomes empty goes back to the pool, from which any class takes
//! it; one empty page a class stays, so that a class that gains and loses one item does not cut a page each time. Memory is taken from the
//! allocator in whole pages, up to what the caller allows, and is counted to the byte that was asked for.

/// Names a chunk: the page's number and the place in it.
pub(crate) type Id = u32;
/// No chunk.
pub(crate) const NONE: Id = u32::MAX;
/// Bytes of a page.
pub(crate) const PAGE: usize = 64 << 10;
/// Bytes of the largest chunk: a quarter of a page.
pub(crate) const LARGEST: usize = 16 << 10;
const SMALLEST: usize = 64;
const PLACES: u32 = 10;

/// Where a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// On its page's list of free chunks.
    #[default]
    Free,
    /// Taken for an item that is not in the table yet.
    Taken,
    /// The first chunk of an item.
    Item,
    /// A later chunk of an item, whose first is `prev`.
    More,
}

/// What is known of a chunk; of an item in that of its first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meta {
    /// Changes with each change of the item; 0: never had one.
    pub(crate) cas: u64,
    /// Low half of the key's hash.
    pub(crate) hash: u32,
    /// The next item of the hash bucket, or the next free chunk of the page.
    pub(crate) chain: Id,
    /// Neighbours in the queue.
    pub(crate) prev: Id,
    pub(crate) next: Id,
    /// The next chunk of the item.
    pub(crate) more: Id,
    /// Second at which it is gone; 0: never.
    pub(crate) expires: u32,
    /// Second at which it was stored, or found to be asked for often.
    pub(crate) time: u32,
    /// The client's flags.
    pub(crate) flags: u32,
    /// Bytes of the value.
    pub(crate) len: u32,
    pub(crate) key_len: u8,
    pub(crate) marks: u8,
    pub(crate) state: State,
}

impl Meta {
    /// It is asked for.
    #[inline]
    pub(crate) fn bump(&mut self, now: u32) {
        if self.marks & FETCHED == 0 {
            self.marks |= FETCHED;
        } else if self.marks & ACTIVE == 0 {
            self.marks |= ACTIVE;
            self.time = now;
        }
        self.marks |= USED;
    }
}

/// It was asked for since it was stored.
pub(crate) const FETCHED: u8 = 1;
/// It was asked for again since then.
pub(crate) const ACTIVE: u8 = 2;
/// Meta commands: it is known to be out of date.
pub(crate) const STALE: u8 = 4;
/// Meta commands: somebody was told to renew it.
pub(crate) const TOKEN_SENT: u8 = 8;
/// The key came in base 64.
pub(crate) const BINARY_KEY: u8 = 16;
/// It was asked for since the order last looked at it.
pub(crate) const USED: u8 = 32;

/// A page: its chunks, and what is known of each.
#[derive(Debug)]
struct Page {
    data: Box<[u8]>,
    meta: Box<[Meta]>,
    /// Bytes of a chunk, those of its class.
    size: u16,
    class: u8,
    /// First free chunk.
    free: Id,
    used: u16,
    /// Neighbours among the pages of the class that have free chunks.
    prev: u32,
    next: u32,
}

impl Page {
    #[inline]
    fn chunk(&self, place: usize) -> &[u8] {
        let size = usize::from(self.size);
        &self.data[place * size..][..size]
    }
}

/// One size of chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Class {
    /// Bytes of a chunk.
    pub(crate) size: usize,
    /// Chunks of a page.
    pub(crate) places: u32,
    /// Pages that it has.
    pub(crate) pages: u32,
    /// Chunks in use.
    pub(crate) used: u32,
    /// The first page with free chunks.
    partial: u32,
}

/// All pages of a store.
#[derive(Debug)]
pub(crate) struct Slab {
    pages: Vec<Page>,
    /// Pages of no class that have memory.
    pool: Vec<u32>,
    /// Numbers of pages whose memory was given back.
    holes: Vec<u32>,
    classes: Vec<Class>,
    /// The class for so many times eight bytes.
    by_size: Box<[u8]>,
    bytes: usize,
    /// Chunks of all pages that have a class.
    places: usize,
}

const NO_PAGE: u32 = u32::MAX;
const NO_CLASS: u8 = u8::MAX;

fn page_of(id: Id) -> usize {
    (id >> PLACES) as usize
}

fn place_of(id: Id) -> usize {
    (id & ((1 << PLACES) - 1)) as usize
}

/// Sizes of chunks: each about a fifth more than the one before, and as large as so many to a page allow.
fn classes() -> Vec<Class> {
    let (mut classes, mut size) = (Vec::new(), SMALLEST);
    while size <= LARGEST {
        let places = PAGE / size;
        let size_now = PAGE / places / 8 * 8;
        classes.push(Class { size: size_now, places: places as u32, pages: 0, used: 0, partial: NO_PAGE });
        size = (size_now * 6 / 5).next_multiple_of(8);
        if size > LARGEST && size_now < LARGEST {
            size = LARGEST;
        }
    }
    classes
}

impl Slab {
    pub(crate) fn new() -> Self {
        let classes = classes();
        let mut class = 0;
        let by_size = (0..=LARGEST / 8).map(|n| {
            class += usize::from(classes[class].size < n * 8);
            class as u8
        });
        let by_size = by_size.collect();
        Self { pages: Vec::new(), pool: Vec::new(), holes: Vec::new(), classes, by_size, bytes: 0, places: 0 }
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Chunks of all pages that have a class, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The smallest class with room for so many bytes, at most [`LARGEST`].
    pub(crate) fn class_for(&self, bytes: usize) -> usize {
        usize::from(self.by_size[bytes.div_ceil(8)])
    }

    /// The class of a chunk.
    #[inline]
    pub(crate) fn class_of(&self, id: Id) -> usize {
        usize::from(self.pages[page_of(id)].class)
    }

    #[inline]
    pub(crate) fn meta(&self, id: Id) -> &Meta {
        &self.pages[page_of(id)].meta[place_of(id)]
    }

    #[inline]
    pub(crate) fn meta_mut(&mut self, id: Id) -> &mut Meta {
        &mut self.pages[page_of(id)].meta[place_of(id)]
    }

    /// Where a chunk is; of a page that has no class any more it is free.
    pub(crate) fn state(&self, id: Id) -> State {
        self.pages[page_of(id)].meta.get(place_of(id)).map_or(State::Free, |meta| meta.state)
    }

    /// The bytes of a chunk.
    #[inline]
    pub(crate) fn chunk(&self, id: Id) -> &[u8] {
        self.pages[page_of(id)].chunk(place_of(id))
    }

    #[inline]
    pub(crate) fn chunk_mut(&mut self, id: Id) -> &mut [u8] {
        let page = &mut self.pages[page_of(id)];
        let size = usize::from(page.size);
        &mut page.data[place_of(id) * size..][..size]
    }

    /// What is known of a chunk, and its bytes.
    #[inline]
    pub(crate) fn both(&self, id: Id) -> (&Meta, &[u8]) {
        let (page, place) = (&self.pages[page_of(id)], place_of(id));
        (&page.meta[place], page.chunk(place))
    }

    /// The same, and what is known of it may change.
    #[inline]
    pub(crate) fn both_mut(&mut self, id: Id) -> (&mut Meta, &[u8]) {
        let (page, place) = (&mut self.pages[page_of(id)], place_of(id));
        let size = usize::from(page.size);
        (&mut page.meta[place], &page.data[place * size..][..size])
    }

    /// A free chunk of a class that has one, of a page from the pool, or of a new page if `room` bytes are enough for that.
    pub(crate) fn take(&mut self, class: usize, room: usize) -> Option<Id> {
        if self.classes[class].partial == NO_PAGE {
            self.add_page(class, room)?;
        }
        let number = self.classes[class].partial;
        let page = &mut self.pages[number as usize];
        let id = page.free;
        let meta = &mut page.meta[place_of(id)];
        page.free = meta.chain;
        *meta =
            Meta { state: State::Taken, chain: NONE, prev: NONE, next: NONE, more: NONE, ..Meta::default() };
        page.used += 1;
        let full = page.free == NONE;
        self.classes[class].used += 1;
        if full {
            self.leave_partial(number);
        }
        Some(id)
    }

    /// Gives a chunk back.
    pub(crate) fn give(&mut self, id: Id) {
        let number = page_of(id) as u32;
        let page = &mut self.pages[number as usize];
        let meta = &mut page.meta[place_of(id)];
        *meta = Meta { chain: page.free, ..Meta::default() };
        let was_full = page.free == NONE;
        page.free = id;
        page.used -= 1;
        let (empty, class) = (page.used == 0, usize::from(page.class));
        self.classes[class].used -= 1;
        if was_full {
            self.join_partial(number);
        }
        let alone =
            self.pages[number as usize].prev == NO_PAGE && self.pages[number as usize].next == NO_PAGE;
        if empty && !alone {
            self.release(number);
        }
    }

    /// Bytes that a page of this class costs, beside the page itself.
    fn meta_bytes(&self, class: usize) -> usize {
        self.classes[class].places as usize * size_of::<Meta>()
    }

    fn add_page(&mut self, class: usize, room: usize) -> Option<()> {
        let meta = self.meta_bytes(class);
        let number = if let Some(number) = self.pool.pop_if(|_| meta <= room) {
            number
        } else {
            let cost = PAGE + meta + size_of::<Page>();
            // Guard: `cost > room` as `false` fails store::tests::memory_stays_below
            if cost > room {
                return None;
            }
            self.bytes += PAGE + size_of::<Page>();
            let page = Page {
                data: vec![0; PAGE].into_boxed_slice(),
                meta: Box::default(),
                size: 0,
                class: NO_CLASS,
                free: NONE,
                used: 0,
                prev: NO_PAGE,
                next: NO_PAGE,
            };
            match self.holes.pop() {
                Some(number) => {
                    self.pages[number as usize] = page;
                    number
                }
                None => {
                    self.pages.push(page);
                    self.pages.len() as u32 - 1
                }
            }
        };
        self.bytes += meta;
        let Class { places, size, .. } = self.classes[class];
        let page = &mut self.pages[number as usize];
        let name = |place: u32| (number << PLACES) | place;
        let chain = |place| if place + 1 < places { name(place + 1) } else { NONE };
        page.meta = (0..places).map(|place| Meta { chain: chain(place), ..Meta::default() }).collect();
        (page.class, page.size) = (class as u8, size as u16);
        page.free = name(0);
        page.used = 0;
        self.classes[class].pages += 1;
        self.places += places as usize;
        self.join_partial(number);
        Some(())
    }

    /// Puts an empty page into the pool.
    fn release(&mut self, number: u32) {
        self.leave_partial(number);
        let class = usize::from(self.pages[number as usize].class);
        self.classes[class].pages -= 1;
        self.places -= self.classes[class].places as usize;
        self.bytes -= self.meta_bytes(class);
        let page = &mut self.pages[number as usize];
        page.meta = Box::default();
        page.class = NO_CLASS;
        page.free = NONE;
        self.pool.push(number);
    }

    /// Puts the one empty page that a class may keep into the pool, if it has one.
    pub(crate) fn release_empty(&mut self, class: usize) -> bool {
        let number = self.classes[class].partial;
        let empty = number != NO_PAGE && self.pages[number as usize].used == 0;
        if empty {
            self.release(number);
        }
        empty
    }

    /// Gives the memory of a page of the pool back to the allocator, if there is one.
    pub(crate) fn shrink(&mut self) -> bool {
        let Some(number) = self.pool.pop() else { return false };
        self.pages[number as usize].data = Box::default();
        self.bytes -= PAGE + size_of::<Page>();
        self.holes.push(number);
        true
    }

    /// The chunks of the page of `id` that are in use; `None` if one of them is of an item that is not in the table yet.
    pub(crate) fn page_mates(&self, id: Id, out: &mut Vec<Id>) -> bool {
        out.clear();
        let number = page_of(id) as u32;
        for (place, meta) in self.pages[number as usize].meta.iter().enumerate() {
            match meta.state {
                State::Taken => return false,
                State::Free => {}
                _ => out.push((number << PLACES) | place as u32),
            }
        }
        true
    }

    /// The chunks that come behind `id` in order of pages, free ones included, at most `most`; where to go on.
    pub(crate) fn walk(&self, from: Id, most: usize, mut each: impl FnMut(Id, &Meta)) -> Id {
        let (mut page, mut place, mut seen) = (page_of(from), place_of(from), 0);
        while seen < most {
            let Some(now) = self.pages.get(page) else { return 0 };
            let Some(meta) = now.meta.get(place) else {
                // A page of no class counts, too, so that this ends.
                (page, place, seen) = (page + 1, 0, seen + 1);
                continue;
            };
            each(((page as u32) << PLACES) | place as u32, meta);
            (place, seen) = (place + 1, seen + 1);
        }
        ((page as u32) << PLACES) | (place as u32).min((1 << PLACES) - 1)
    }

    fn join_partial(&mut self, number: u32) {
        let class = usize::from(self.pages[number as usize].class);
        let first = std::mem::replace(&mut self.classes[class].partial, number);
        let page = &mut self.pages[number as usize];
        (page.prev, page.next) = (NO_PAGE, first);
        if first != NO_PAGE {
            self.pages[first as usize].prev = number;
        }
    }

    fn leave_partial(&mut self, number: u32) {
        let Page { prev, next, class, .. } = self.pages[number as usize];
        if prev == NO_PAGE {
            self.classes[usize::from(class)].partial = next;
        } else {
            self.pages[prev as usize].next = next;
        }
        if next != NO_PAGE {
            self.pages[next as usize].prev = prev;
        }
        let page = &mut self.pages[number as usize];
        (page.prev, page.next) = (NO_PAGE, NO_PAGE);
    }
}
