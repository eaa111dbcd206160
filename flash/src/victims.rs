//! Which block to collect next: those that are full, by the number of their valid pages.

const NONE: u32 = u32::MAX;

/// Doubly linked lists of blocks, one for each number of valid pages, oldest first. Every change
/// takes constant time, so that a model of millions of pages keeps up.
#[derive(Debug)]
pub(crate) struct Victims {
    /// First and last of each list.
    ends: Vec<(u32, u32)>,
    /// Neighbours of each block in its list.
    links: Vec<(u32, u32)>,
    /// No list below this one has a block.
    least: usize,
}

impl Victims {
    pub fn new(pages_per_block: usize) -> Self {
        Victims { ends: vec![(NONE, NONE); pages_per_block + 1], links: Vec::new(), least: 0 }
    }

    /// Makes room for blocks with numbers below `blocks`.
    pub fn grow(&mut self, blocks: usize) {
        self.links.resize(blocks, (NONE, NONE));
    }

    /// Adds a block behind those with as many valid pages.
    pub fn insert(&mut self, block: u32, valid: usize) {
        let (first, last) = self.ends[valid];
        self.links[block as usize] = (last, NONE);
        match last {
            NONE => self.ends[valid] = (block, block),
            _ => {
                self.links[last as usize].1 = block;
                self.ends[valid] = (first, block);
            }
        }
        self.least = self.least.min(valid);
    }

    /// Takes out a block that was added with `valid`.
    pub fn remove(&mut self, block: u32, valid: usize) {
        let (before, after) = self.links[block as usize];
        match before {
            NONE => self.ends[valid].0 = after,
            _ => self.links[before as usize].1 = after,
        }
        match after {
            NONE => self.ends[valid].1 = before,
            _ => self.links[after as usize].0 = before,
        }
    }

    /// The block with the fewest valid pages, of several the one that has had so many for the
    /// longest time; it stays in.
    pub fn best(&mut self) -> Option<(u32, usize)> {
        while self.least < self.ends.len() {
            match self.ends[self.least].0 {
                NONE => self.least += 1,
                block => return Some((block, self.least)),
            }
        }
        // The next insertion sets it again.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_block_comes_first_and_of_equals_the_oldest() {
        let mut v = Victims::new(8);
        v.grow(5);
        for (block, valid) in [(0, 5), (1, 3), (2, 3), (3, 8)] {
            v.insert(block, valid);
        }
        assert_eq!(v.best(), Some((1, 3)));
        v.remove(1, 3);
        v.insert(1, 2);
        v.remove(0, 5);
        v.insert(0, 2);
        let mut order = Vec::new();
        while let Some((block, valid)) = v.best() {
            v.remove(block, valid);
            order.push((block, valid));
        }
        assert_eq!(order, [(1, 2), (0, 2), (2, 3), (3, 8)]);
        v.insert(4, 0);
        assert_eq!(v.best(), Some((4, 0)));
    }
}
