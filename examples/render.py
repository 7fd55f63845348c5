"""A lit mesh drawn to a PNG: geometry, transform, rasterise and shade are steps of one pipeline, and so is what follows.

    python examples/render.py                       a torus, 640 x 480, to render.png
    python examples/render.py --size 96x72 --check  small, and the same bytes from every executor

What comes after shading is a list, `POST`: swap, drop or add a line of it.
"""

import argparse
import struct
import time
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit

import tilework as tw

SUBPIXELS = 256  # of a pixel's edge: corners are whole numbers of them, so that coverage is exact
FAR = np.float32(np.inf)


# Two steps with reuse, so two kernels; everything else is functions of one element.


class Rasterise:
    """Which face is nearest at the centre of each pixel, and where in it that is.

    sx, sy   s32 (V,) corners, in subpixels     depth  f32 (V,)     faces  s32 (F, 3), clockwise on the screen
    face     s32 (H, W), -1 where there is none     b1, b2  f32 (H, W) weights of corners 1 and 2
    """

    name = "rasterise"

    def __init__(self, height, width):
        self.height, self.width = height, width

    def signature(self):
        pixels = {"shape": (self.height, self.width), "follows": ("y", "x")}
        return (
            tw.ArgSpec("sx", "s32", shape=("V",)),
            tw.ArgSpec("sy", "s32", shape=("V",)),
            tw.ArgSpec("depth", "f32", shape=("V",)),
            tw.ArgSpec("faces", "s32", shape=("F", 3)),
            tw.ArgSpec("face", "s32", "write", **pixels),
            tw.ArgSpec("b1", "f32", "write", **pixels),
            tw.ArgSpec("b2", "f32", "write", **pixels),
        )

    def index_space(self):
        return tw.IndexSpace((tw.Axis("y", self.height), tw.Axis("x", self.width)))

    def execute(self, ctx):
        read = [ctx.read(slot) for slot in ("sx", "sy", "depth", "faces")]
        ctx.sweep(self, *read, *(ctx.write(slot) for slot in ("face", "b1", "b2")))


@njit(nogil=True, error_model="numpy")
def rasterise_tile(y0, y1, x0, x1, sx, sy, depth, faces, face, b1, b2):
    half = SUBPIXELS // 2
    for y in range(y0, y1):
        for x in range(x0, x1):
            face[y, x] = -1
            b1[y, x] = np.float32(0)
            b2[y, x] = FAR  # the depth until the nearest face is known
    for f in range(faces.shape[0]):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        xi, yi, xj, yj, xk, yk = (
            np.int64(sx[i]), np.int64(sy[i]), np.int64(sx[j]), np.int64(sy[j]), np.int64(sx[k]), np.int64(sy[k])
        )  # fmt: skip
        area = (xj - xi) * (yk - yi) - (yj - yi) * (xk - xi)
        if area <= 0:
            continue
        top = max(y0, (min(yi, yj, yk) - half) // SUBPIXELS)
        bottom = min(y1, (max(yi, yj, yk) - half) // SUBPIXELS + 1)
        left = max(x0, (min(xi, xj, xk) - half) // SUBPIXELS)
        right = min(x1, (max(xi, xj, xk) - half) // SUBPIXELS + 1)
        for y in range(top, bottom):
            py = np.int64(y) * SUBPIXELS + half
            for x in range(left, right):
                px = np.int64(x) * SUBPIXELS + half
                w1 = (px - xi) * (yk - yi) - (py - yi) * (xk - xi)
                w2 = (xj - xi) * (py - yi) - (yj - yi) * (px - xi)
                if w1 < 0 or w2 < 0 or w1 + w2 > area:
                    continue
                u, v = np.float32(w1) / np.float32(area), np.float32(w2) / np.float32(area)
                near = depth[i] + u * (depth[j] - depth[i]) + v * (depth[k] - depth[i])
                if near < b2[y, x]:
                    b2[y, x] = near
                    face[y, x] = f
    for y in range(y0, y1):
        for x in range(x0, x1):
            b2[y, x] = np.float32(0)
            if face[y, x] < 0:
                continue
            i, j, k = faces[face[y, x], 0], faces[face[y, x], 1], faces[face[y, x], 2]
            xi, yi, xj, yj, xk, yk = (
                np.int64(sx[i]), np.int64(sy[i]), np.int64(sx[j]), np.int64(sy[j]), np.int64(sx[k]), np.int64(sy[k])
            )  # fmt: skip
            area = np.float32((xj - xi) * (yk - yi) - (yj - yi) * (xk - xi))
            px, py = np.int64(x) * SUBPIXELS + half, np.int64(y) * SUBPIXELS + half
            b1[y, x] = np.float32((px - xi) * (yk - yi) - (py - yi) * (xk - xi)) / area
            b2[y, x] = np.float32((xj - xi) * (py - yi) - (yj - yi) * (px - xi)) / area


def rasterise(sx, sy, depth, faces, face, b1, b2):
    """The same in NumPy, one face after another over all pixels."""
    half, nearest = SUBPIXELS // 2, np.full(face.shape, FAR)
    face[...], b1[...], b2[...] = -1, 0, 0
    py, px = (g * SUBPIXELS + half for g in np.mgrid[: face.shape[0], : face.shape[1]])
    for f, corners in enumerate(faces):
        (xi, xj, xk), (yi, yj, yk) = sx[corners].astype(np.int64), sy[corners].astype(np.int64)
        area = (xj - xi) * (yk - yi) - (yj - yi) * (xk - xi)
        if area <= 0:
            continue
        w1 = (px - xi) * (yk - yi) - (py - yi) * (xk - xi)
        w2 = (xj - xi) * (py - yi) - (yj - yi) * (px - xi)
        u, v = w1.astype(np.float32) / np.float32(area), w2.astype(np.float32) / np.float32(area)
        di, dj, dk = depth[corners]
        near = di + u * (dj - di) + v * (dk - di)
        hit = (w1 >= 0) & (w2 >= 0) & (w1 + w2 <= area) & (near < nearest)
        nearest[hit], face[hit], b1[hit], b2[hit] = near[hit], f, u[hit], v[hit]


class Interpolate:
    """An attribute of the corners at each pixel: f32 (V,) to f32 (H, W); 0 where there is no face."""

    name = "interpolate"

    def signature(self):
        pixels = {"shape": ("H", "W"), "follows": ("y", "x")}
        return (
            tw.ArgSpec("face", "s32", **pixels),
            tw.ArgSpec("b1", "f32", **pixels),
            tw.ArgSpec("b2", "f32", **pixels),
            tw.ArgSpec("faces", "s32", shape=("F", 3)),
            tw.ArgSpec("at", "f32", shape=("V",)),
            tw.ArgSpec("y", "f32", "write", **pixels),
        )

    def index_space(self):
        return tw.IndexSpace((tw.Axis("y", "H"), tw.Axis("x", "W")))

    def execute(self, ctx):
        ctx.sweep(self, *(ctx.read(slot) for slot in ("face", "b1", "b2", "faces", "at")), ctx.write("y"))


@njit(nogil=True, error_model="numpy")
def interpolate_tile(y0, y1, x0, x1, face, b1, b2, faces, at, out):
    for y in range(y0, y1):
        for x in range(x0, x1):
            f = face[y, x]
            out[y, x] = np.float32(0)
            if f >= 0:
                a0, a1, a2 = at[faces[f, 0]], at[faces[f, 1]], at[faces[f, 2]]
                out[y, x] = a0 + b1[y, x] * (a1 - a0) + b2[y, x] * (a2 - a0)


def interpolate(face, b1, b2, faces, at, out):
    a0, a1, a2 = (at[faces[face, n]] for n in range(3))
    out[...] = np.where(face >= 0, a0 + b1 * (a1 - a0) + b2 * (a2 - a0), np.float32(0))


for kernel, tile, meaning in (
    ("rasterise", rasterise_tile, rasterise),
    ("interpolate", interpolate_tile, interpolate),
):
    tw.factory.register(kernel, backend="cpu")(partial(lambda found: found, tile))
    tw.factory.register(kernel, backend="reference")(partial(lambda found: tw.factory.Whole(found), meaning))


# Geometry and transform


def torus_x(u, v):
    return (np.float32(1) + np.float32(0.42) * np.cos(v)) * np.cos(u)


def torus_y(u, v):
    return (np.float32(1) + np.float32(0.42) * np.cos(v)) * np.sin(u)


def torus_z(u, v):
    return np.float32(0.42) * np.sin(v)


def normal_x(u, v):
    return np.cos(v) * np.cos(u)


def normal_y(u, v):
    return np.cos(v) * np.sin(u)


def normal_z(u, v):
    return np.sin(v)


def to_subpixels(x, w, half, up):
    return np.rint((np.float32(1) + up * (x / w)) * half)


def over(z, w):
    return z / w


def geometry(pipe, around, across):
    """Corners f32 (V, 4), their normals f32 (V, 3), and the faces s32 (F, 3) of a torus."""
    u, v = (g.ravel().astype(np.float32) for g in np.mgrid[:around, :across])
    u, v = u * np.float32(2 * np.pi / around), v * np.float32(2 * np.pi / across)
    u, v = pipe.constant("u", u[:, None]), pipe.constant("v", v[:, None])
    ones = pipe.constant("ones", np.ones((around * across, 1), np.float32))
    corners = tw.ops.concat([*(tw.ops.map(fn, u, v) for fn in (torus_x, torus_y, torus_z)), ones], axis=1)
    normals = tw.ops.concat([tw.ops.map(fn, u, v) for fn in (normal_x, normal_y, normal_z)], axis=1)
    i, j = (g.ravel() for g in np.mgrid[:around, :across])
    a, b = i * across + j, (i + 1) % around * across + j
    c, d = (i + 1) % around * across + (j + 1) % across, i * across + (j + 1) % across
    faces = np.concatenate([np.stack([a, c, b], 1), np.stack([a, d, c], 1)]).astype(np.int32)
    return corners, normals, pipe.constant("faces", faces)


def column(x, n):
    return tw.ops.squeeze(tw.ops.slice(x, [n], [n + 1], axes=[1]), axes=[1])


def transform(pipe, corners, normals, height, width):
    """Screen corners in subpixels, s32 (V,) twice, their depth f32 (V,), and three normals f32 (V,)."""
    clip = tw.ops.gemm(corners, pipe.input("camera", "f32", (4, 4)))
    turned = tw.ops.gemm(normals, pipe.input("turn", "f32", (3, 3)))
    x, y, z, w = (column(clip, n) for n in range(4))
    sx = tw.ops.map(to_subpixels, x, w, half=width * SUBPIXELS / 2, up=1.0, dtype="s32")
    sy = tw.ops.map(to_subpixels, y, w, half=height * SUBPIXELS / 2, up=-1.0, dtype="s32")
    return sx, sy, tw.ops.map(over, z, w), [column(turned, n) for n in range(3)]


# Shading, and what may follow it: each takes a value f32 (H, W, 3) and returns one


def shade(nx, ny, nz, face, lx, ly, lz):
    """How much light falls on a pixel and how much is mirrored to the eye."""
    length = np.sqrt(nx * nx + ny * ny + nz * nz)
    light = (nx * lx + ny * ly + nz * lz) / max(length, np.float32(1e-6))
    light = max(light, np.float32(0))
    shine = light * light * light * light
    shine = shine * shine * shine * shine
    return np.float32(0.08) + np.float32(1.1) * light + np.float32(1.6) * shine if face >= 0 else np.float32(-1)


def coloured(light, colour, ground):
    return light * colour if light >= 0 else ground


def tone_map(pipe, x):
    """Reinhard's curve, then a gamma of 2."""

    def curve(v):
        v = max(v, np.float32(0))
        return np.sqrt(v * (np.float32(1) + v * np.float32(0.25)) / (np.float32(1) + v))

    return tw.ops.map(curve, x)


def dither(levels):
    """An ordered 8 x 8 pattern, as wide as one of `levels` steps."""

    def step(pipe, x):
        ordered = np.zeros((1, 1))
        while len(ordered) < 8:
            ordered = np.block([[4 * ordered, 4 * ordered + 2], [4 * ordered + 3, 4 * ordered + 1]])
        pattern = (ordered.astype(np.float32) + np.float32(0.5)) / np.float32(64) - np.float32(0.5)
        height, width, _ = x.shape
        tiled = np.tile(pattern, (-(-height // 8), -(-width // 8)))[:height, :width, None]

        def shifted(v, p):
            return v + p

        return tw.ops.map(shifted, x, pipe.constant("pattern", tiled / np.float32(levels)))

    return step


def quantized(scheme):
    """What a scheme leaves of the colours."""

    def step(pipe, x):
        height, width, _ = x.shape
        flat = tw.ops.reshape(x, (height, 3 * width))
        return tw.ops.reshape(tw.ops.fake_quantize(flat, scheme), (height, width, 3))

    return step


PALETTE = np.array(
    [[12, 14, 28], [38, 30, 58], [58, 22, 34], [96, 34, 40], [140, 52, 44], [186, 84, 50], [224, 128, 64], [246, 180, 96],
     [255, 224, 150], [255, 248, 220], [60, 60, 84], [100, 92, 110], [150, 130, 130], [200, 176, 160], [28, 40, 70], [48, 74, 110]],
    np.float32,
).ravel() / np.float32(255)  # fmt: skip


def nearest_colour(x, codes):
    for p in range(len(codes)):
        best = np.float32(1e30)
        code = 0
        for c in range(16):
            r = x[3 * p] - PALETTE[3 * c]
            g = x[3 * p + 1] - PALETTE[3 * c + 1]
            b = x[3 * p + 2] - PALETTE[3 * c + 2]
            away = r * r + g * g + b * b
            if away < best:
                best = away
                code = c
        codes[p] = code


def colour_of(codes, x):
    for p in range(len(codes)):
        for c in range(3):
            x[3 * p + c] = PALETTE[3 * codes[p] + c]


palette16 = tw.Scheme(
    "palette16", 4, 3, {}, vector=3, encode_block=nearest_colour, decode_block=colour_of
)  # one code of 4 bits for each pixel

POST = [tone_map, dither(10), quantized(palette16)]


def build(height, width, around=160, across=64, post=None):
    """The pipeline: the camera comes in, the picture u8 (H, W, 3) goes out."""
    pipe = tw.Pipeline("render")
    corners, normals, faces = geometry(pipe, around, across)
    sx, sy, depth, normal = transform(pipe, corners, normals, height, width)
    face, b1, b2 = pipe.add(Rasterise(height, width), sx=sx, sy=sy, depth=depth, faces=faces)
    at = [pipe.add(Interpolate(), face=face, b1=b1, b2=b2, faces=faces, at=n) for n in normal]
    light = tw.ops.map(shade, *at, face, lx=-0.45, ly=0.62, lz=0.64)
    x = tw.ops.map(
        coloured,
        tw.ops.unsqueeze(light, [2]),
        colour=np.array([0.95, 0.5, 0.22], np.float32),
        ground=np.array([0.010, 0.014, 0.035], np.float32),
    )
    for step in POST if post is None else post:
        x = step(pipe, x)
    pipe.output("picture", tw.ops.quantize(x, scale=1 / 255, dtype="u8"))
    return pipe


def camera(height, width, turn, tilt):
    """The matrices that corners and normals, as rows, are multiplied with."""
    c, s, a, b = np.cos(turn), np.sin(turn), np.cos(tilt), np.sin(tilt)
    rotation = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, a, -b], [0, b, a]])
    view = np.eye(4)
    view[:3, :3] = rotation
    view[3, 2] = -3.4
    near, far, zoom = 1.0, 10.0, 2.0
    lens = np.zeros((4, 4))
    lens[0, 0], lens[1, 1] = zoom * height / width, zoom
    lens[2, 2], lens[2, 3], lens[3, 2] = (far + near) / (near - far), -1, 2 * far * near / (near - far)
    return {"camera": (view @ lens).astype(np.float32), "turn": rotation.astype(np.float32)}


def write_png(path, picture):
    height, width, _ = picture.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, 3 * width)], axis=1)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), chunk(b"IEND", b""))
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def executors(isa=()):
    """Every way to run it, also held to these instruction sets. The picture is the same for each of them."""
    yield "reference, in NumPy", tw.SingleThreadExecutor(backend="reference")
    yield "one step after another", tw.SingleThreadExecutor()
    for threads in (1, 2, 3):
        yield f"tiled on {threads}", tw.TilingExecutor(threads=threads)
    yield "tiles of 8 x 32 pixels", tw.TilingExecutor(threads=2, tile={"rasterise": {"y": 8, "x": 32}})
    yield "nothing fused or chained", tw.TilingExecutor(threads=2, fuse=False, chain=False)
    for level in isa:
        yield f"instructions: {level}", tw.TilingExecutor(threads=2, isa=level)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--size", default="640x480", help="of the picture, in pixels")
    words.add_argument("--out", default="render.png")
    words.add_argument("--check", action="store_true", help="compare the bytes of every executor")
    words.add_argument("--isa", nargs="*", default=[], help="levels to check too, say generic avx2")
    words.add_argument("--plain", action="store_true", help="without dithering and palette")
    given = words.parse_args()
    width, height = map(int, given.size.split("x"))
    mesh = {"around": 160, "across": 64} if width > 200 else {"around": 24, "across": 12}
    pipe = build(height, width, **mesh, post=[tone_map] if given.plain else POST)
    inputs = camera(height, width, turn=0.5, tilt=1.0)
    plan = tw.TilingExecutor().compile(pipe)
    picture = plan.run(inputs)["picture"]
    start = time.perf_counter()
    plan.run(inputs)
    print(f"{len(pipe.steps)} steps, {1e3 * (time.perf_counter() - start):.1f} ms a picture of {width} x {height}")
    write_png(given.out, picture)
    print(f"{len(np.unique(picture.reshape(-1, 3), axis=0))} colours, written to {given.out}")
    if given.check:
        for name, executor in executors(given.isa):
            same = executor.run(pipe, inputs)["picture"].tobytes() == picture.tobytes()
            print(f"{name:26} {'the same bytes' if same else 'OTHER BYTES'}")
            assert same


if __name__ == "__main__":
    main()
