//! Checksums of the newer structures in HDF5 files, set to fit what the structures hold.

/// Pieces that are mended, at most: damaged files may lead in circles.
const MOST: usize = 400;

struct Mender<'a> {
    file: &'a mut [u8],
    left: usize,
}

/// Sets all checksums that can be found. What lies inside of what is mended first, so that one pass does.
pub fn mend(file: &mut [u8]) {
    let mut mender = Mender { file, left: MOST };
    for at in 0..mender.file.len().saturating_sub(4) {
        match mender.file.get(at..at + 4) {
            Some(b"FAHD") => mender.fixed(at),
            Some(b"EAHD") => mender.growing(at),
            Some(b"OHDR") => mender.object(at),
            Some(b"\x89HDF") if mender.uint(at + 8, 1).is_some_and(|v| (2..=3).contains(&v)) => {
                mender.sum(at, 48)
            }
            _ => None,
        };
    }
}

impl Mender<'_> {
    fn uint(&self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.file.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn address(&self, at: usize) -> Option<usize> {
        self.uint(at, 8).and_then(|at| usize::try_from(at).ok())
    }

    /// Sets the checksum of `len` bytes, which are its last four.
    fn sum(&mut self, at: usize, len: usize) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let block = self.file.get_mut(at..at.checked_add(len)?)?;
        let (content, sum) = block.split_at_mut(len.checked_sub(4)?);
        sum.copy_from_slice(&checksum(content).to_le_bytes());
        Some(())
    }

    fn object(&mut self, at: usize) -> Option<()> {
        let flags = self.uint(at + 5, 1)?;
        let before = 6 + 16 * (flags >> 5 & 1) as usize + 4 * (flags >> 4 & 1) as usize;
        let size_bytes = 1 << (flags & 3);
        let size = usize::try_from(self.uint(at + before, size_bytes)?).ok()?;
        let before = before + size_bytes;
        let own = 4 + 2 * (flags >> 2 & 1) as usize;
        let mut blocks = vec![(at, before, size.checked_add(before + 4)?)];
        while let Some((at, before, len)) = blocks.pop() {
            let end = at.checked_add(len)?.checked_sub(4)?;
            let mut message = at + before;
            while message + own <= end {
                let (Some(kind), Some(size)) = (self.uint(message, 1), self.uint(message + 1, 2))
                else {
                    break;
                };
                let body = message + own;
                if kind == 0x10
                    && blocks.len() < 8
                    && let (Some(at), Some(len)) = (self.address(body), self.address(body + 8))
                {
                    blocks.push((at, 4, len));
                }
                message = body + size as usize;
            }
            self.sum(at, len)?;
        }
        Some(())
    }

    fn fixed(&mut self, at: usize) -> Option<()> {
        let (width, page_bits) = (self.uint(at + 6, 1)?, self.uint(at + 7, 1)?);
        let (count, block) = (self.uint(at + 8, 8)?, self.address(at + 16)?);
        self.sum(at, 28)?;
        self.table(block, 14, count, width, page_bits, true)
    }

    /// A run of entries, perhaps in pages.
    fn table(
        &mut self,
        at: usize,
        prefix: u64,
        count: u64,
        width: u64,
        bits: u64,
        own: bool,
    ) -> Option<()> {
        let per_page = 1_u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
        let bytes = |entries: u64| usize::try_from(entries.checked_mul(width)?).ok();
        if count <= per_page {
            return self.sum(at, bytes(count)?.checked_add(prefix as usize + 4)?);
        }
        let pages = count.div_ceil(per_page);
        let head = prefix as usize + 4 + if own { pages.div_ceil(8) as usize } else { 0 };
        self.sum(at, head)?;
        let mut at = at.checked_add(head)?;
        for n in 0..pages {
            self.sum(at, bytes(per_page.min(count - n * per_page))? + 4)?;
            at = at.checked_add(bytes(per_page)? + 4)?;
        }
        Some(())
    }

    fn growing(&mut self, at: usize) -> Option<()> {
        let byte = |n: usize| self.uint(at + n, 1);
        let (width, number_bits, inline) = (byte(6)?, byte(7)?, byte(8)?);
        let (smallest, direct, page_bits) = (byte(9)?, byte(10)?, byte(11)?);
        let block = self.address(at + 60)?;
        self.sum(at, 72)?;
        if !smallest.is_power_of_two() || !direct.is_power_of_two() || number_bits > 64 {
            return None;
        }
        let levels = 1 + (number_bits as u32).saturating_sub(smallest.ilog2());
        let direct_levels = (2 * direct.ilog2()).min(levels);
        let addresses = 2 * (direct - 1) + u64::from(levels - direct_levels);
        let mut place = block.checked_add(14 + (inline * width) as usize)?;
        self.sum(block, 14 + (inline * width + 8 * addresses) as usize + 4)?;
        let prefix = 14 + number_bits.div_ceil(8);
        for level in 0..levels {
            let (blocks, count) = (1_u64 << (level / 2), smallest << level.div_ceil(2));
            let mut list = place;
            if level < direct_levels {
                place += 8 * blocks as usize;
            } else {
                let at = self.address(place)?;
                place += 8;
                let pages = count.checked_shr(page_bits as u32).unwrap_or(0);
                let bits = if pages > 1 { pages.div_ceil(8) } else { 0 };
                let len = blocks.checked_mul(bits + 8)?.checked_add(prefix + 4)?;
                if self.sum(at, usize::try_from(len).ok()?).is_none() {
                    continue;
                }
                list = at + (prefix + blocks * bits) as usize;
            }
            for n in 0..blocks as usize {
                if let Some(at) = self.address(list + 8 * n) {
                    // Blocks that are not there are passed over.
                    let _ = self.table(at, prefix, count, width, page_bits, false);
                }
            }
        }
        Some(())
    }
}

/// Bob Jenkins' hash "lookup3", as HDF5 has it.
fn checksum(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let [mut a, mut b, mut c] = [start; 3];
    let mut groups = bytes.chunks(12).peekable();
    while let Some(group) = groups.next() {
        let mut padded = [0; 12];
        padded[..group.len()].copy_from_slice(group);
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| padded[4 * i + byte]));
        a = a.wrapping_add(word(0));
        b = b.wrapping_add(word(1));
        c = c.wrapping_add(word(2));
        if groups.peek().is_some() {
            for turn in [4, 6, 8, 16, 19, 4] {
                a = a.wrapping_sub(c) ^ c.rotate_left(turn);
                c = c.wrapping_add(b);
                [a, b, c] = [b, c, a];
            }
        } else {
            for turn in [14, 11, 25, 16, 4, 14, 24] {
                c = (c ^ b).wrapping_sub(b.rotate_left(turn));
                [a, b, c] = [b, c, a];
            }
            c = b;
        }
    }
    c
}
