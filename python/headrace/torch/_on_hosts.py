"""What a DataLoader does where its cache is on several hosts: it plans by their speeds, which the
ranks exchange between epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import _arguments as arguments
from ._fields import Fields
from ._hosts import Exchange, figures, is_hosts, say_local


class OnHosts(Fields):
    """The part of the DataLoader that is about caches on several hosts."""

    _exchange: Exchange
    _later_hosts: tuple[int, str] | None  # an epoch, and its cache from then on
    _begun: bool  # whether an epoch was begun, so that there are rates to exchange

    @property
    def rank(self) -> int:
        """This process's rank; may change until the first epoch begins."""
        return self._part.now()[0]

    @property
    def world_size(self) -> int:
        """Number of ranks that share each epoch; may change until the first epoch begins."""
        return self._part.now()[1]

    def hosts(self) -> list[dict[str, Any]]:
        """Returns the cache's hosts as this rank sees them, in the order of the list; an empty
        list with other caches. Each has ``name``, ``is_self``, ``is_up``, ``ranks`` (number on
        it), ``budget_bytes``, ``planned_items`` and ``planned_bytes`` (that it should keep),
        ``limit_bytes`` and ``used_bytes`` (of its memcached, when last queried), this rank's
        counters for it (``fetched``, ``fetched_bytes``, ``missed``, ``stored``,
        ``stored_bytes``, ``refused``, ``failures``), and ``problem``, a text."""
        return self._native().hosts()

    def rates(self) -> dict[str, Any]:
        """Returns the recent speed of this rank's host, for :meth:`set_rates`, in bytes per
        second: ``own_bytes_per_s`` (its own server), ``peer_bytes_per_s``,
        ``storage_bytes_per_s``, ``prepare_bytes_per_s``; 0 if not measured. Also ``wait_s`` and
        ``ready_s``, see :meth:`stats`, and ``host``, its index in the list of hosts or -1.
        Raises ValueError if the cache has no hosts."""
        return self._native().rates()

    def set_rates(self, ranks: Iterable[Mapping[str, Any]], epoch: int | None = None) -> None:
        """Plans from ``epoch`` on (``None``: the next one) with these rates of all ranks, in rank
        order. Every rank must pass the same rates. For programs that gather rates themselves,
        with ``gather=False``."""
        number = self._next_epoch if epoch is None else arguments.epoch(epoch)
        self._native().set_rates(number, [figures(rates) for rates in ranks])

    def set_hosts(self, cache: str, epoch: int | None = None) -> None:
        """Changes the cache's hosts from ``epoch`` on (``None``: the next one); ``cache`` is a new
        text ``"memcached:..."``. Every rank must pass the same text for the same epoch before
        the epoch begins; the ranks compare before its first batch. Items that stay on their
        host are found again. Raises ValueError if the text is invalid or the cache has no
        hosts."""
        number = self._next_epoch if epoch is None else arguments.epoch(epoch)
        self._native().set_hosts(number, cache)
        self._later_hosts = (number, cache)

    def _has_hosts(self) -> bool:
        return is_hosts(self._options["cache"])

    def _agree(self, epoch: int, position: int) -> None:
        """Exchanges rates with the other ranks before an epoch, except the first: there are no
        rates yet, and the native loader's comparison of ranks reports differences better."""
        if not self._has_hosts():
            return
        if self._later_hosts is not None and epoch >= self._later_hosts[0]:
            self._options["cache"] = self._later_hosts[1]
            self._later_hosts = None
        begun, self._begun = self._begun, True
        if not begun or self.world_size == 1:
            return
        # Exact ranks too: it is for the comparison to say that only some are.
        core = self._native()
        ranks = self._exchange.run(core.rates(), epoch, position)
        if ranks is not None and self._options["assignment"] != "exact":
            core.set_rates(epoch, [figures(rates) for rates in ranks])

    def _say(self, core: Any) -> None:
        """Logs notices to the user before the first batch."""
        if self._dealt is not None:
            self._dealt.say()
        chosen = self._options["assignment"] != "auto"
        if chosen or self.rank or self.world_size == 1 or not self._has_hosts():
            return
        hosts = core.hosts()
        if len(hosts) > 1:
            say_local(len(hosts))
