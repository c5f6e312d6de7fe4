"""The iterator that ``iter(loader)`` returns: one pass of a DataLoader."""

from __future__ import annotations

from typing import Any

from .._errors import TooManyBadSamples
from ._epochs import Epoch, Epochs
from ._feed import Feed


class Iteration:
    """Iterates over one epoch, from its beginning or from a loaded state.

    The first batch fixes the epoch. Until then another ``iter()`` is the same epoch, and
    set_epoch changes it: frameworks do both.
    """

    def __init__(self, loader: Epochs) -> None:
        self._loader = loader
        self._done = False
        before = loader._live
        if before is None or not self._can_take_over(before):
            self._start()
            return
        self._epoch = loader._live = Epoch(before.number, before.resume, before.core)

    def _can_take_over(self, before: Epoch) -> bool:
        """Returns whether the previous iterator's prepared batches are those of this one."""
        loader = self._loader
        return (
            loader._feed is None
            and not before.is_taken
            and before.number == loader._next_epoch
            and before.resume is loader._resume
            and before.core is loader._core
        )

    def _start(self) -> None:
        loader = self._loader
        number, resume = loader._next_epoch, loader._resume
        loader._live = None
        loader._agree(number, 0 if resume is None else resume["position"])
        self._epoch = Epoch(number, resume, loader._native())
        if loader._line is not None:
            loader._line.begin(loader.stats())
        if resume is not None:
            self._resume(resume)
        elif loader._joined and "stream" in loader._options:
            self._restore_core(0)  # start_epoch would join anew
        else:
            self._epoch.core.start_epoch(number)
            if loader._feed is not None:
                loader._feed.begin()
                loader._expect(self._epoch.core, 0)
        loader._live = self._epoch

    def _resume(self, state: dict[str, Any]) -> None:
        loader, position = self._loader, state["position"]
        if loader._feed is not None:
            sampler = state["sampler"]
            if sampler is None:
                loader._feed.begin()  # the state was taken between epochs
            else:
                position = self._epoch.position = loader._feed.resume(sampler)
                self._epoch.batches = sampler["batches"]
        self._restore_core(position)

    def _restore_core(self, position: int) -> None:
        loader = self._loader
        loader._joined = True
        self._epoch.core.restore(
            version=1,
            shuffle=int(loader.shuffle and loader._feed is None),
            seed=loader._seed_of_draws(),
            epoch=self._epoch.number,
            position=position,
            samples=len(loader._source),
        )
        loader._expect(self._epoch.core, position)

    def __iter__(self) -> Iteration:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        with self._loader._reader:
            return self._next()

    def _next(self) -> Any:
        loader, epoch = self._loader, self._epoch
        if self._done:
            raise StopIteration
        if loader._live is not epoch:
            loader._check_open()
            raise RuntimeError(
                "this iterator has ended, because a newer iter() of the same DataLoader, a "
                "load_state_dict or a fork took its place: make two DataLoaders to read side by "
                "side"
            )
        if not epoch.is_taken:
            epoch = self._follow_set_epoch()
            if loader._line is not None:
                loader._line.first_batch(epoch.number)
        if loader._feed is not None:
            self._fill(loader._feed)
        try:
            batch = epoch.core.next()
        except TooManyBadSamples as error:
            self._finish()
            raise TooManyBadSamples(str(error), tuple(loader.skipped())) from None
        except Exception as error:
            # Where the agent is gone, and not the data, the next iter() goes on here.
            is_gone = isinstance(error, OSError) and "agent" in loader._options
            place = loader.state_dict() if is_gone else None
            self._finish()
            if place is not None:
                loader._next_epoch, loader._resume = int(place["epoch"]), place
            raise
        if batch is None:
            self._finish()
            if epoch.failure is not None:
                raise epoch.failure
            if loader._line is not None:
                loader._line.end(epoch.number, loader.stats(), loader._part.now())
            raise StopIteration
        self._taken()
        if not loader._joined and "stream" in loader._options:
            loader._follow_stream(epoch, batch.epoch)
        if epoch.pushed:
            count, epoch.own = epoch.pushed.popleft()
            epoch.position += count
            epoch.batches += 1
        return loader._tensors(batch)

    def _follow_set_epoch(self) -> Epoch:
        """Restarts if set_epoch of the loader or of a sampler was called since iter()."""
        loader = self._loader
        moved = loader._feed is not None and loader._feed.was_moved()
        if moved:
            loader._resume = None
        loader._follow_sampler()
        if moved or loader._next_epoch != self._epoch.number:
            self._start()
        return self._epoch

    def _taken(self) -> None:
        """Marks the epoch as used: the next iter() begins another one."""
        loader, epoch = self._loader, self._epoch
        if not epoch.is_taken:
            epoch.is_taken = True
            loader._next_epoch, loader._resume = epoch.number + 1, None

    def _finish(self) -> None:
        self._taken()
        self._done = True
        if self._loader._live is self._epoch:
            self._loader._live = None

    def _fill(self, feed: Feed) -> None:
        """Pushes batches until one more is pending than the loader prepares ahead."""
        loader, epoch = self._loader, self._epoch
        while not epoch.ended and len(epoch.pushed) <= loader._batches_ahead:
            try:
                if epoch.held is None:
                    self._take(feed)
                if epoch.held is None:
                    self._end()
                elif len(epoch.held[0]) <= loader._capacity:
                    self._push(*epoch.held)
                elif epoch.pushed:
                    return  # the larger ones come when these are through
                else:
                    epoch.core = loader._grow(len(epoch.held[0]))
                    self._restore_core(epoch.position)
            except Exception as error:
                epoch.failure = error
                self._end()

    def _take(self, feed: Feed) -> None:
        """Takes a batch of the sampler's. What is no Exception, Ctrl-C above all, passes at
        once. The sampler may then have lost indices, and a generator would look as if it had
        no more: the epoch goes on with what came before, and fails where its end would be."""
        try:
            self._epoch.held = feed.take()
        except Exception:
            raise
        except BaseException as error:
            self._epoch.failure = RuntimeError(
                f"the sampler was stopped by {type(error).__name__} and cannot go on: the epoch "
                "is not complete. Begin another, or take state_dict() before this error and give "
                "it to load_state_dict(), which goes on where the last batch ended"
            )
            self._end()
            raise

    def _push(self, indices: Any, own: Any) -> None:
        self._epoch.core.push(indices)
        self._epoch.pushed.append((len(indices), own))
        self._epoch.held = None

    def _end(self) -> None:
        self._epoch.ended = True
        self._epoch.core.push_end()
