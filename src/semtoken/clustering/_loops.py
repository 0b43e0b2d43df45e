# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""The compiled inner loops: arrays in, alone or as named tuples, arrays out, nothing else.

All of them release the interpreter's lock, so that several tiles are worked on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from semtoken.support.compiled import compile_and_keep

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile at the first call and keep the machine code for the next process."""
    result: Function = compile_and_keep(function)
    return result


def compiled_fast(function: Function) -> Function:
    """Compile a function whose sums may be taken in any order, so that they can be vectorized."""
    result: Function = compile_and_keep(function, fastmath={"reassoc", "contract"})
    return result


# --- rows --------------------------------------------------------------------------------


@compiled
def load(part, row, half, bits, value):
    """Copy a row into `value`, the float32 view of `bits`. `half`: the row is bfloat16, given as its bits."""
    if half:
        for j in range(part.shape[1]):
            bits[j] = np.uint32(part[row, j]) << np.uint32(16)
    else:
        for j in range(part.shape[1]):
            value[j] = part[row, j]


@compiled
def gather(table, index, factor, out, column):
    """out[r, column : column + d] = table[index[r]] * factor[r], for a table of d columns of float32 or bfloat16."""
    columns, words, half = slice(column, column + table.shape[1]), out.view(np.uint32), table.itemsize == 2
    for r in range(len(index)):
        row, f = table[index[r]], factor[r]
        value, bits = out[r, columns], words[r, columns]
        if half:
            for j in range(len(value)):
                bits[j] = np.uint32(row[j]) << np.uint32(16)
            for j in range(len(value)):
                value[j] = np.float32(value[j] * f)
        else:
            for j in range(len(value)):
                value[j] = np.float32(row[j] * f)


@compiled_fast
def finish_block(out, center, left, unit):
    """Turn gathered rows x into [-x, 1, h] (left) or [x, h, 1], in place, with h = |x|^2/2.
    Unit rows are taken as they are, with h = 1/2; from all others the center is subtracted first.
    """
    d = len(center)
    for r in range(len(out)):
        row = out[r, :d]
        half = 0.5
        if not unit:
            total = 0.0
            for j in range(d):
                row[j] -= center[j]
                total += np.float64(row[j]) * np.float64(row[j])
            half = 0.5 * total
        if left:
            for j in range(d):
                row[j] = -row[j]
        out[r, d + left] = np.float32(half)
        out[r, d + 1 - left] = np.float32(1.0)


@compiled_fast
def norms(table, out):
    """The Euclidean norm of each row of a table of float32 or bfloat16, summed in float64."""
    bits, half = np.empty(table.shape[1], np.uint32), table.itemsize == 2
    row = bits.view(np.float32)
    for r in range(len(table)):
        load(table, r, half, bits, row)
        total = 0.0
        for j in range(len(row)):
            total += np.float64(row[j]) * np.float64(row[j])
        out[r] = np.sqrt(total)


@compiled
def hash_rows(words, seed, out):
    """Mix the 32-bit words of row r into out[r]: equal rows that start from equal numbers get equal numbers."""
    for r in range(len(words)):
        h = out[r] ^ seed
        for j in range(words.shape[1]):
            # 2^64 over the golden ratio, an odd number whose bits look random (Knuth's multiplicative hashing).
            h = (h ^ np.uint64(words[r, j])) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        out[r] = h


# --- one tile of gaps ---------------------------------------------------------------------------------------


@compiled_fast
def any_below(values, limit):
    """Return True if any value is below the limit, computed without a branch so that it is vectorized."""
    count = 0
    for j in range(len(values)):
        count += values[j] < limit
    return count > 0


@compiled
def find_close(gap, left_half, right_half, closeness, diagonal, where):
    """Write the position (row * 65536 + column) of every gap < closeness * (h(x) + h(y)) to `where`; return how many.
    With `diagonal` only columns beyond the row's own number are looked at.
    """
    found = 0
    widest = right_half.max()
    for i in range(len(left_half)):
        row = gap[i]
        # One bound for the row, so that blocks without a close pair are passed over together.
        bound = closeness * (left_half[i] + widest)
        for start in range(i + 1 if diagonal else 0, len(row), 64):
            stop = min(start + 64, len(row))
            if not any_below(row[start:stop], bound):
                continue
            for j in range(start, stop):
                if row[j] < closeness * (left_half[i] + right_half[j]):
                    where[found] = np.uint32(i) * np.uint32(65536) + np.uint32(j)
                    found += 1
    return found


@compiled_fast
def half_squared_difference(x, y, factor):
    """|x - factor * y|^2 / 2, computed in float64."""
    total = 0.0
    for j in range(len(x)):
        difference = x[j] - factor * y[j]
        total += difference * difference
    return 0.5 * total


@compiled
def exact_gaps(part, scale, first, second, out):
    """out[e] += |s x - t y|^2 / 2 for the rows x = part[first[e]], y = part[second[e]] and their scales s, t.

    `part` holds float32, or bfloat16 as its bits.
    """
    d = part.shape[1]
    x = np.empty(d, np.float64)
    bits = np.empty(d, np.uint32)
    y = bits.view(np.float32)
    half = part.itemsize == 2
    present = -1
    for e in range(len(first)):
        if first[e] != present:
            present = first[e]
            load(part, present, half, bits, y)
            for j in range(d):
                x[j] = y[j] * scale[present]
        load(part, second[e], half, bits, y)
        out[e] += half_squared_difference(x, y, scale[second[e]])


@compiled_fast
def segment_max(gap, row_starts, column_starts, out):
    """out[a, b] = max(out[a, b], largest gap between rows of segment a and columns of segment b)."""
    row = np.empty(gap.shape[1], np.float32)
    for a in range(len(row_starts) - 1):
        if row_starts[a] == row_starts[a + 1]:
            continue
        row[:] = gap[row_starts[a]]
        for i in range(row_starts[a] + 1, row_starts[a + 1]):
            other = gap[i]
            for j in range(len(row)):
                # Written as a choice, not as a branch, so that it is vectorized.
                row[j] = other[j] if other[j] > row[j] else row[j]
        for b in range(len(column_starts) - 1):
            largest = out[a, b]
            for j in range(column_starts[b], column_starts[b + 1]):
                largest = row[j] if row[j] > largest else largest
            out[a, b] = largest


@compiled
def keep_near(gap, limit, diagonal, where, value):
    """Write the position (row * 65536 + column) and the value of every gap <= limit; return how many. Values below 0,
    which rounding makes, are written as 0. With `diagonal` only columns beyond the row's own number are looked at.
    """
    found = 0
    # `any_below` asks for less, and gaps that are equal to the limit are wanted.
    beyond = np.nextafter(np.float32(limit), np.float32(np.inf))
    for i in range(gap.shape[0]):
        row = gap[i]
        first = i + 1 if diagonal else 0
        for start in range(first, len(row), 64):
            stop = min(start + 64, len(row))
            if not any_below(row[start:stop], beyond):
                continue
            for j in range(start, stop):
                if row[j] <= limit:
                    where[found] = np.uint32(i) * np.uint32(65536) + np.uint32(j)
                    value[found] = row[j] if row[j] > 0 else np.float32(0)
                    found += 1
    return found


@compiled
def nearest_in_tile(gap, numbers, best, who):
    """Update each column's nearest row, its gap in best[j] and its number in who[j], by gaps [i, j] to rows numbers[i].
    Of equal gaps the row that came first stays.
    """
    for i in range(gap.shape[0]):
        row, number = gap[i], numbers[i]
        for j in range(len(row)):
            nearer = row[j] < best[j]
            best[j] = row[j] if nearer else best[j]
            who[j] = number if nearer else who[j]


@compiled_fast
def sum_of_least(some, others):
    """The sum over all i of min(some[i], others[i])."""
    total = 0.0
    for j in range(len(some)):
        total += min(some[j], others[j])
    return total


@compiled
def add_rows(rows, group, total):
    """total[group[r]] += rows[r], for as many columns as `total` has."""
    for r in range(len(group)):
        into = total[group[r]]
        for j in range(len(into)):
            into[j] += rows[r, j]


# --- the sparse graph ---------------------------------------------------------------------------------------


@compiled
def count_degrees(where, first_row, first_column, degree):
    """Add 1 to the degree of both clusters of every pair in a chunk; `where` holds positions, as of `keep_near`."""
    for e in range(len(where)):
        degree[first_row + np.int64(where[e] >> np.uint32(16))] += 1
        degree[first_column + np.int64(where[e] & np.uint32(65535))] += 1


@compiled
def scatter(where, value, first_row, first_column, fill, neighbor, gap):
    """Add a chunk of pairs to the lists of both ends; fill[c] is the next free place of cluster c."""
    for e in range(len(where)):
        a = first_row + np.int64(where[e] >> np.uint32(16))
        b = first_column + np.int64(where[e] & np.uint32(65535))
        neighbor[fill[a]] = b
        gap[fill[a]] = value[e]
        fill[a] += 1
        neighbor[fill[b]] = a
        gap[fill[b]] = value[e]
        fill[b] += 1


# --- nearest-neighbor chain on the graph ----------------------------------------------------------------------


@compiled
def find(parent, x):
    """The cluster that x is part of now; links of merged clusters on the way are shortened."""
    root = x
    while parent[root] != root:
        root = parent[root]
    while parent[x] != root:
        following = parent[x]
        parent[x] = root
        x = following
    return root


@compiled
def tidy(x, graph, clusters):
    """Rewrite the neighbor list of cluster x so that it names current clusters only.

    A neighbor that has merged since becomes the cluster that it is part of now, at the gap of the farthest part, if
    all parts are in the list. Otherwise it is dropped: a part that is missing is farther than the threshold, and so is
    then, under complete linkage, the whole.
    """
    neighbor, gap = graph.neighbor, graph.gap
    parent, size, part, farthest, touched = (
        clusters.parent, clusters.size, clusters.part, clusters.farthest, clusters.touched
    )  # fmt: skip
    begin = graph.start[x]
    kept = begin
    count = 0
    for e in range(begin, begin + graph.length[x]):
        c = neighbor[e]
        if parent[c] == c:
            neighbor[kept] = c
            gap[kept] = gap[e]
            kept += 1
            continue
        root = find(parent, c)
        if part[root] == 0:
            touched[count] = root
            count += 1
        part[root] += size[c]
        farthest[root] = max(farthest[root], gap[e])
    for t in range(count):
        root = touched[t]
        # All parts are within the threshold, so the farthest is the distance of complete linkage.
        if part[root] == size[root]:
            neighbor[kept] = root
            gap[kept] = farthest[root]
            kept += 1
        part[root] = 0
        farthest[root] = 0
    graph.length[x] = kept - begin


@compiled
def nearest(x, before, graph, low):
    """The nearest cluster in the list of x and its gap; -1 for an empty list.
    Of equal gaps it is the one before x in the chain, else the one with the lowest row.
    """
    neighbor, gap = graph.neighbor, graph.gap
    best = -1
    best_gap = np.float32(np.inf)
    for e in range(graph.start[x], graph.start[x] + graph.length[x]):
        c = neighbor[e]
        if best == -1 or gap[e] < best_gap:
            best, best_gap = c, gap[e]
        elif gap[e] == best_gap and best != before and (c == before or low[c] < low[best]):
            best = c
    return best, best_gap


@compiled
def error_of(gap, slack, refined):
    """A bound on the error of a gap: smaller where the gap was computed from differences."""
    return gap * np.float32(2.0**-22) if gap < refined else slack


@compiled
def has_rivals(x, best, best_gap, slack, refined, graph):
    """Return True if another cluster in the list of x may be as near as the best one, within the error of gaps."""
    neighbor, gap = graph.neighbor, graph.gap
    reach = best_gap + error_of(best_gap, slack, refined)
    for e in range(graph.start[x], graph.start[x] + graph.length[x]):
        if neighbor[e] != best and gap[e] - error_of(gap[e], slack, refined) <= reach:
            return True
    return False


@compiled
def join(new, top, other, members):
    """Link the base clusters of `top` and then those of `other` to one list, that of a new cluster."""
    members.following[members.last[top]] = members.first[other]
    members.first[new], members.last[new] = members.first[top], members.last[other]


@compiled
def intersect(a, b, graph, clusters):
    """Replace list a by the entries that both lists have, with the larger gap; returns how many."""
    start, length, neighbor, gap = graph.start, graph.length, graph.neighbor, graph.gap
    part, farthest = clusters.part, clusters.farthest
    for e in range(start[b], start[b] + length[b]):
        part[neighbor[e]] = 1
        farthest[neighbor[e]] = gap[e]
    kept = start[a]
    for e in range(start[a], start[a] + length[a]):
        c = neighbor[e]
        if part[c] == 1:
            neighbor[kept] = c
            gap[kept] = max(gap[e], farthest[c])
            kept += 1
    for e in range(start[b], start[b] + length[b]):
        part[neighbor[e]] = 0
        farthest[neighbor[e]] = 0
    return kept - start[a]


@compiled
def chain(state, steps, graph, clusters, members, made, stack, slack, refined, within):
    """Extend the nearest-neighbor chain by at most `steps` steps; returns whether there is more to do.

    state = [length of the chain, next cluster to start from, merges so far, question, answer]. Clusters 0..m-1 are
    given, m + t is the result of merge t, whose lowest rows, height and parts are in `made`. Every list that a step
    looks at is tidied first.

    Where the errors of the gaps leave open which cluster is nearest to the last one of the chain, that one becomes
    the question (else -1), and the call ends; the next call finds the nearest one as the answer. Gaps that
    are not `within` reach are left alone: a pair that is not in the lists may be nearer.
    """
    start, length, parent, low = graph.start, graph.length, clusters.parent, clusters.low
    m = len(clusters.touched)
    depth, following, done = state[0], state[1], state[2]
    more = True
    for _ in range(steps):
        if depth == 0:
            while following < m + done and (parent[following] != following or length[following] == 0):
                following += 1
            if following == m + done:
                more = False
                break
            stack[0] = following
            depth = 1
        top = stack[depth - 1]
        before = stack[depth - 2] if depth > 1 else -1
        tidy(top, graph, clusters)
        other, distance = nearest(top, before, graph, low)
        if other != -1 and distance > within:
            other, length[top] = -1, 0
        elif state[3] == top:
            other, state[3] = state[4], -1
        elif other != -1 and has_rivals(top, other, distance, slack, refined, graph):
            state[3] = top
            break
        if other == -1:
            depth -= 1
        elif other != before:
            stack[depth] = other
            depth += 1
        else:
            tidy(other, graph, clusters)
            new = m + done
            start[new] = start[top]
            length[new] = intersect(top, other, graph, clusters)
            parent[top] = parent[other] = parent[new] = new
            clusters.size[new] = clusters.size[top] + clusters.size[other]
            low[new] = min(low[top], low[other])
            join(new, top, other, members)
            made.parts[done, 0], made.parts[done, 1] = top, other
            made.pair[done, 0], made.pair[done, 1] = low[top], low[other]
            made.height[done] = distance
            done += 1
            depth -= 2
    state[0], state[1], state[2] = depth, following, done
    return more


# --- rounds of mutual nearest neighbors -----------------------------------------------------------------------


@compiled
def comes_before(gap, tie, other_gap, other_tie):
    """Return True if one neighbor is nearer than another: by gap, then by the exclusive or of the two lowest rows.

    The exclusive or is the same seen from both sides, and pairs the rows of a group of equal gaps two by two
    instead of sending all of them to the lowest.
    """
    return gap < other_gap or (gap == other_gap and tie < other_tie)


@compiled
def insert(slot, cluster, gap, tie, near, near_gap, near_tie, held, bound):
    """Insert a neighbor into the sorted short list of a slot; no cluster that was left out is nearer than `bound`."""
    # The arrays one by one: handing the named tuple over at every call made average linkage 8% slower.
    places = near.shape[1]
    n = held[slot]
    if gap > bound[slot]:
        return
    if n == places:
        last = places - 1
        if not comes_before(gap, tie, near_gap[slot, last], near_tie[slot, last]):
            bound[slot] = min(bound[slot], gap)
            return
        bound[slot] = min(bound[slot], near_gap[slot, last])
        n -= 1
    at = n
    while at > 0 and comes_before(gap, tie, near_gap[slot, at - 1], near_tie[slot, at - 1]):
        near[slot, at] = near[slot, at - 1]
        near_gap[slot, at] = near_gap[slot, at - 1]
        near_tie[slot, at] = near_tie[slot, at - 1]
        at -= 1
    near[slot, at] = cluster
    near_gap[slot, at] = gap
    near_tie[slot, at] = tie
    held[slot] = n + 1


@compiled
def scan_rows(gap, slots, first, cluster, low, lists):
    """Try to insert every column of a tile (slots first, first + 1, ...) into the lists of its rows."""
    near, near_gap, near_tie, held, bound = lists.near, lists.near_gap, lists.near_tie, lists.held, lists.bound
    places = near.shape[1]
    for i in range(len(slots)):
        slot = slots[i]
        row = gap[i]
        for start in range(0, len(row), 64):
            stop = min(start + 64, len(row))
            if held[slot] == places:
                last = near_gap[slot, places - 1]
                if not any_below(row[start:stop], np.nextafter(last, np.float32(np.inf))):
                    bound[slot] = min(bound[slot], last)
                    continue
            for j in range(start, stop):  # the bound is asked here, too: a call costs more than the rest
                if row[j] <= bound[slot] and first + j != slot and cluster[first + j] >= 0:
                    tie = low[slot] ^ low[first + j]
                    insert(slot, cluster[first + j], row[j], tie, near, near_gap, near_tie, held, bound)


@compiled
def offer_rows(gap, slots, fresh, first, scanned, cluster, low, lists):
    """Try to insert the fresh rows of a tile into the lists of its columns, except columns that are scanned anyway."""
    near, near_gap, near_tie, held, bound = lists.near, lists.near_gap, lists.near_tie, lists.held, lists.bound
    for i in range(len(slots)):
        slot = slots[i]
        if not fresh[i]:
            continue
        for j in range(gap.shape[1]):
            other = first + j
            if gap[i, j] <= bound[other] and not scanned[other]:
                tie = low[slot] ^ low[other]
                insert(other, cluster[slot], gap[i, j], tie, near, near_gap, near_tie, held, bound)


@compiled
def drop_dead(alive, lists, stale):
    """Remove merged clusters from all lists; sets stale[slot] where the nearest one has to be searched again."""
    near, near_gap, near_tie, held, bound = lists.near, lists.near_gap, lists.near_tie, lists.held, lists.bound
    for slot in range(len(held)):
        kept = 0
        lost_first = held[slot] > 0 and not alive[near[slot, 0]]
        for e in range(held[slot]):
            if alive[near[slot, e]]:
                near[slot, kept] = near[slot, e]
                near_gap[slot, kept] = near_gap[slot, e]
                near_tie[slot, kept] = near_tie[slot, e]
                kept += 1
        held[slot] = kept
        stale[slot] = lost_first and (kept == 0 or near_gap[slot, 0] >= bound[slot])


@compiled_fast
def segment_total_distance(gap, row_starts, column_starts, out):
    """out[a, b] += sum of sqrt(2 gap) between rows of segment a and columns of segment b."""
    for a in range(len(row_starts) - 1):
        for b in range(len(column_starts) - 1):
            total = 0.0
            for i in range(row_starts[a], row_starts[a + 1]):
                for j in range(column_starts[b], column_starts[b + 1]):
                    total += np.sqrt(2.0 * max(gap[i, j], np.float32(0)))
            out[a, b] += total


# --- spanning forest -------------------------------------------------------------------------------------------


@compiled
def spanning_forest(m, one, other, order):
    """Kruskal's algorithm: the edges that join two trees, taken from short to long, and the lowest members of both."""
    parent, kept, pair = np.arange(m), np.empty(m, np.int64), np.empty((m, 2), np.int64)
    found = 0
    for t in order:
        a, b = find(parent, one[t]), find(parent, other[t])
        if a != b:
            # The lowest row names the tree.
            parent[max(a, b)] = min(a, b)
            kept[found], pair[found, 0], pair[found, 1] = t, min(a, b), max(a, b)
            found += 1
    return kept[:found], pair[:found]
