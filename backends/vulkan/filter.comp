#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "log.glsl"
// Leaves of each row the tokens that a choice may fall on: y = x for those, minus infinity elsewhere. A workgroup a row.
// A filter is the last token that it leaves, in its own order. That one is found without sorting: what tokens count goes
// into bins by distance, in one of which the filter ends; that one's go into others by the highest bits of their keys,
// and so on. Where those that are left are few they are listed, and only the list is read. What tokens count is a whole
// number of 64 bits in two words, so that sums are the same in any order.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer M { uint most[]; };
layout(binding = 2, std430) readonly buffer S { float shares[]; };
layout(binding = 3, std430) readonly buffer A { uint allowed[]; };
layout(binding = 4, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n, cols, words, xoff, xstride, moff, soff, aoff, yoff, ystride; };

const uint BINS = 1024, LIST = 1024, UN = 4, ALL = 0xffffffffu; // UN: tokens that an invocation reads at once
const uint COUNT = 0, TYPICAL = 1, MASS = 2; // by count; by mass, the most typical first; by mass, the largest first

shared uint low[BINS], high[BINS], list[LIST]; // low, and high where it carries
shared uint partLow[256], partHigh[256], groupLow[16], groupHigh[16]; // their sums
shared uint listed, foundAt, foundLow, foundHigh;

// A place in an order: bin, key and number of a token.
struct Place { uint bin, key, id; };

uint ax, aw; // where the row and its bits begin
float top, scale, base, mean; // of the row; what masses are relative to; the mean distance from the top
Place last, typical;          // what is left: up to these
bool byTypical;

bool upTo(Place p, Place l) {
  return p.bin < l.bin || p.bin == l.bin && (p.key < l.key || p.key == l.key && p.id <= l.id);
}

uint order(float v) {
  uint u = floatBitsToUint(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return ALL; // a NaN
  if (u == 0x80000000u) u = 0; // zeros are equal
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
const uint LOWEST = 0x007fffffu, INFINITE = 0xff800000u; // of minus and plus infinity

float number(uint o) { return uintBitsToFloat((o & 0x80000000u) != 0 ? o & 0x7fffffffu : ~o); }

#define LOW uintBitsToFloat(0xff800000u) // minus infinity
float vs[UN];
uint ids[UN];
// fetch reads the tokens of an invocation among those from number from on, of the row or of the list; what is not
// allowed comes as minus infinity.
void fetch(bool short_, uint from, uint tokens) {
  [[unroll]] for (uint u = 0; u < UN; u++) {
    uint j = from + u * gl_WorkGroupSize.x + gl_LocalInvocationID.x, k = j < tokens ? j : 0, id = short_ ? list[k] : k;
    uint bits = allowed[aw + id / 32];
    float v = x[ax + id];
    ids[u] = id;
    vs[u] = j < tokens && (bits >> (id & 31u) & 1u) != 0 ? v : LOW;
  }
}

Place placeOf(bool near, float v, uint id) {
  float far = top - v;
  Place p;
  p.key = ~order(v);
  if (near) {
    float apart = abs(far - mean);
    p.key = floatBitsToUint(apart) << 1 | (far > mean ? 1u : 0u);
    far = apart;
  }
  p.bin = uint(min(far * scale, float(BINS - 1)));
  p.id = id;
  return p;
}

// left says whether a token is; one that is not allowed comes as minus infinity.
bool left(float v, uint id) {
  if (order(v) <= LOWEST || !upTo(placeOf(false, v, id), last)) return false;
  return !byTypical || upTo(placeOf(true, v, id), typical);
}

// whole is e in [0, 1] as a multiple of 2^-40.
uvec2 whole(float e) {
  float h = floor(e * 256.0);
  return uvec2(uint((e * 256.0 - h) * 4294967296.0), uint(h));
}

void count(uint bin, uvec2 m) {
  uint h = m.y;
  if (m.x != 0) {
    uint sum = atomicAdd(low[bin], m.x) + m.x;
    if (sum < m.x) h++;
  }
  if (h != 0) atomicAdd(high[bin], h);
}

uvec2 plus(uvec2 a, uvec2 b) {
  uint carry, l = uaddCarry(a.x, b.x, carry);
  return uvec2(l, a.y + b.y + carry);
}
uvec2 minus(uvec2 a, uvec2 b) {
  uint borrow, l = usubBorrow(a.x, b.x, borrow);
  return uvec2(l, a.y - b.y - borrow);
}
bool less(uvec2 a, uvec2 b) { return a.y < b.y || a.y == b.y && a.x < b.x; }

// shareOf is the least whole number that is at least p of sum, and one at least.
uvec2 shareOf(uvec2 sum, float p) {
  uint parts = uint(p * 4294967296.0), h, l, lh, ll;
  umulExtended(sum.y, parts, h, l);
  umulExtended(sum.x, parts, lh, ll);
  uvec2 r = plus(uvec2(l, h), uvec2(lh, 0));
  if (ll != 0 || (r.x | r.y) == 0) r = plus(r, uvec2(1, 0));
  return r;
}

uvec2 ofBin(uint i) { return uvec2(low[i], high[i]); }
uvec2 ofPart(uint i) { return uvec2(partLow[i], partHigh[i]); }
uvec2 ofGroup(uint i) { return uvec2(groupLow[i], groupHigh[i]); }

// end finds the bin in which what is counted comes to need, to the share p where that is positive, and what is needed
// of that bin.
uint end(inout uvec2 need, float p) {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  barrier();
  for (uint i = t; i < 256; i += T) {
    uvec2 s = plus(plus(ofBin(4 * i), ofBin(4 * i + 1)), plus(ofBin(4 * i + 2), ofBin(4 * i + 3)));
    partLow[i] = s.x;
    partHigh[i] = s.y;
  }
  barrier();
  for (uint i = t; i < 16; i += T) {
    uvec2 s = uvec2(0);
    for (uint j = 16 * i; j < 16 * i + 16; j++) s = plus(s, ofPart(j));
    groupLow[i] = s.x;
    groupHigh[i] = s.y;
  }
  barrier();
  if (t == 0) {
    uvec2 all = uvec2(0);
    for (uint j = 0; j < 16; j++) all = plus(all, ofGroup(j));
    if (p > 0) need = shareOf(all, p);
    if (less(all, need)) need = all;
    uint i = 0, to = 15;
    for (; i < to && less(ofGroup(i), need); i++) need = minus(need, ofGroup(i));
    i *= 16;
    for (to = i + 15; i < to && less(ofPart(i), need); i++) need = minus(need, ofPart(i));
    i *= 4;
    for (to = i + 3; i < to && less(ofBin(i), need); i++) need = minus(need, ofBin(i));
    foundAt = i;
    foundLow = need.x;
    foundHigh = need.y;
  }
  barrier();
  need = uvec2(foundLow, foundHigh);
  return foundAt;
}

// find gives the last of the fewest tokens that come to so many, or to the share p of the mass of all that are left.
Place find(uint by, uint many, float p) {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  uint tokens = cols;
  bool short_ = false; // the list is read
  uvec2 need = uvec2(many, 0);
  Place l = Place(0, 0, 0);
  for (uint level = 0; level < 9; level++) { // a bin, four times 8 bits of the key, four times 8 of the number
    uint shift = (level <= 4 ? 32 : 64) - 8 * level; // of level 0: of no use
    if (level > 4 && shift != 0 && (cols - 1) >> shift == 0) continue;
    for (uint i = t; i < BINS; i += T) { low[i] = 0; high[i] = 0; }
    if (t == 0) listed = 0;
    barrier();
    for (uint from = 0; from < tokens; from += UN * T) {
      fetch(short_, from, tokens);
      [[unroll]] for (uint u = 0; u < UN; u++) {
        float v = vs[u];
        uint id = ids[u];
        if (!left(v, id)) continue;
        Place q = placeOf(by == TYPICAL, v, id);
        uint at = q.bin;
        if (level > 0) {
          if (q.bin != l.bin) continue;
          uint mine = level <= 4 ? q.key : q.id, found = level <= 4 ? l.key : l.id;
          if (level > 4 && q.key != l.key) continue;
          if (shift < 24 && (mine ^ found) >> shift >> 8 != 0) continue;
          at = mine >> shift & 255u;
          if (!short_) {
            uint k = atomicAdd(listed, 1);
            if (k < LIST) list[k] = id;
          }
        }
        count(at, by == COUNT ? uvec2(1, 0) : whole(exp_(v - base)));
      }
    }
    uint at = end(need, level == 0 ? p : 0.0);
    if (level == 0) l.bin = at;
    else if (level <= 4) l.key |= at << shift;
    else l.id |= at << shift;
    if (level > 0 && !short_ && listed <= LIST) {
      short_ = true;
      tokens = listed;
    }
    barrier();
    if (short_ && tokens == 1) return placeOf(by == TYPICAL, x[ax + list[0]], list[0]);
  }
  return l;
}

// greatest is the greatest order of those that are left, or of all that are allowed; least the least above minus infinity.
void ends(bool all, out uint greatest, out uint least) {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  if (t == 0) { foundHigh = 0; foundLow = ALL; }
  barrier();
  uint most_ = 0, least_ = ALL;
  for (uint from = 0; from < cols; from += UN * T) {
    fetch(false, from, cols);
    [[unroll]] for (uint u = 0; u < UN; u++) {
      uint o = order(vs[u]);
      if (all ? o <= LOWEST : !left(vs[u], ids[u])) continue;
      most_ = max(most_, o);
      least_ = min(least_, o);
    }
  }
  atomicMax(foundHigh, most_);
  atomicMin(foundLow, least_);
  barrier();
  greatest = foundHigh;
  least = foundLow;
  barrier();
}

// expected is the mean distance from the top by mass of what is left.
float expected() {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  if (t < 2) { low[t] = 0; high[t] = 0; }
  barrier();
  uvec2 mass = uvec2(0), far = uvec2(0);
  for (uint from = 0; from < cols; from += UN * T) {
    fetch(false, from, cols);
    [[unroll]] for (uint u = 0; u < UN; u++) {
      if (!left(vs[u], ids[u])) continue;
      float e = exp_(vs[u] - base);
      mass = plus(mass, whole(e));
      far = plus(far, whole(e * (top - vs[u])));
    }
  }
  count(0, mass);
  count(1, far);
  barrier();
  uvec2 a = ofBin(0), b = ofBin(1);
  barrier();
  return (float(b.y) * 4294967296.0 + float(b.x)) / (float(a.y) * 4294967296.0 + float(a.x));
}

bool aShare(float p) { return p > 0 && p < 1; }

void main() {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  for (uint row = gl_WorkGroupID.x; row < n; row += gl_NumWorkGroups.x) {
    ax = xoff + row * xstride;
    aw = aoff + row * words;
    const uint k = most[moff + row], s = soff + 3 * row, ay = yoff + row * ystride;
    const float atLeast = shares[s + 2];
    bool filtered = int(k) > 0 || aShare(shares[s]) || aShare(shares[s + 1]) || atLeast > 0;
    float least = LOW; // from the best, how far a token may lie behind it
    last = typical = Place(ALL, ALL, ALL);
    byTypical = false;
    if (filtered) {
      uint greatest, lowest;
      ends(true, greatest, lowest);
      filtered = greatest > LOWEST && greatest < INFINITE;
      top = base = number(greatest);
      float range = min(top - number(lowest), 44.0); // the masses of what is further away are less than 2^-40
      scale = range > 1e-30 ? float(BINS) / range : 0.0;
    }
    for (uint by = COUNT; filtered && by <= MASS; by++) { // in one place: it is long
      float p = by == COUNT ? 0.0 : shares[s + by - TYPICAL];
      if (by == COUNT ? int(k) <= 0 || k >= cols : !aShare(p)) continue;
      if (by == TYPICAL) mean = expected();
      Place l = find(by, k, p);
      if (by != TYPICAL) last = l;
      else {
        typical = l;
        byTypical = true;
        uint greatest, lowest;
        ends(false, greatest, lowest);
        base = number(greatest);
      }
    }
    if (atLeast > 0) least = min(log_(atLeast), 0.0);
    for (uint from = 0; from < cols; from += UN * T) {
      fetch(false, from, cols);
      [[unroll]] for (uint u = 0; u < UN; u++) {
        bool stays = !filtered || left(vs[u], ids[u]) && vs[u] - base >= least;
        if (from + u * T + t < cols) y[ay + ids[u]] = stays ? vs[u] : LOW;
      }
    }
    barrier();
  }
}
